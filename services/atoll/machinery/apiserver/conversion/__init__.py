"""Conversion of custom objects by webhooks: asking, judging the answer, keeping it a while.

Here belong: the words of a ConversionReview (`review`), the asking itself with its cache (`conversions`), and what one
write has fetched so far (`known`). Verb handlers get objects in the request's version from here and hand back objects
that are to be stored in another.

Not here: conversion of strategy None and what a definition says of conversion (`kinds.conversion`), and who may be
called (`egress`).
"""

from atoll.machinery.apiserver.conversion.conversions import Conversions, bare
from atoll.machinery.apiserver.conversion.known import Known

__all__ = ["Conversions", "Known", "bare"]
