"""Conversion by the rules of an APIConversion: fields moved, transformed by CEL, or kept aside between two versions.

Here belong the rules as the object has them, compiled against the schemas of the versions (`rules`), and the
conversion of one object by them (`converter`, with `paths` for the fields and `results` for what CEL gives). All of it
is pure: the caller hands in a `pause` and decides on which thread it runs and for how long.

Not here: conversion without rules or by a webhook (`kinds.conversion`), and who asks for one (`apiserver.conversion`).
"""

from atoll.machinery.kinds.apiconversion.converter import ConversionError, Converter
from atoll.machinery.kinds.apiconversion.rules import Rules

__all__ = ["ConversionError", "Converter", "Rules"]
