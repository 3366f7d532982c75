"""The kinds that every workspace serves, and the definition of a kind.

What belongs here: the `Kind` value, one file per built-in kind (names, columns, defaults, checks, warnings), kinds made
from CustomResourceDefinitions (`custom`) with the rules of their objects (`rules`), metadata checks for all kinds, the
published schemas of built-in kinds and the decoder of their protobuf form. Everything is pure: values, and functions on
objects.

What does not belong here: verbs and HTTP (`apiserver`), controllers, admission that reads other objects, and pruning,
defaulting and validation by schemas (`schema`).
"""
