"""Conversion by the rules of an APIConversion: fields moved, transformed by CEL, or preserved between two versions.

What belongs here: the rules of the object, compiled against the schemas of the versions (`rules`), and the conversion
of one object by them (`converter`, with `paths` for fields and `results` for the results of CEL). Everything is pure:
the caller provides a `pause` and chooses the thread and the time limit.

What does not belong here: conversion without rules or by a webhook (`kinds.conversion`), and its callers
(`apiserver.conversion`).
"""

from atoll.machinery.kinds.apiconversion.converter import ConversionError, Converter
from atoll.machinery.kinds.apiconversion.rules import Rules

__all__ = ["ConversionError", "Converter", "Rules"]
