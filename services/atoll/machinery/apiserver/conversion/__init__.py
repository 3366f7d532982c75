"""Conversion of custom objects that takes time: asking a webhook or computing rules, and keeping the answer a while.

Here belong: the words of a ConversionReview (`review`), the running of an APIConversion's rules (`ruled`), the asking
itself with its cache (`conversions`), and what one write has fetched so far (`known`).
Verb handlers get objects in the request's version from here and hand back objects that are to be stored in another.

Not here: conversion of strategy None and what a definition says of conversion (`kinds.conversion`), the rules
themselves (`kinds.apiconversion`), and who may be called (`egress`).
"""

from atoll.machinery.apiserver.conversion.conversions import Conversions, bare
from atoll.machinery.apiserver.conversion.known import ConvertedObject

__all__ = ["Conversions", "ConvertedObject", "bare"]
