"""Conversion of custom objects between versions, by webhooks or by rules, with a cache of the results.

Belongs here: the format of a ConversionReview (`review`), running the rules of an APIConversion (`ruled`), conversion
with its cache (`conversions`), and the converted forms of one write (`converted_object`). Verb handlers receive objects
in the request's version and hand back objects to be stored in another.

Not here: conversion of strategy None and the conversion part of a definition (`kinds.conversion`), the rules
themselves (`kinds.apiconversion`), and the check of webhook addresses (`egress`).
"""

from atoll.machinery.apiserver.conversion.conversions import Conversions, bare
from atoll.machinery.apiserver.conversion.converted_object import ConvertedObject

__all__ = ["Conversions", "ConvertedObject", "bare"]
