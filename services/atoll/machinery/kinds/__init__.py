"""The kinds that every workspace serves by itself, and what a kind is.

Here belong: the `Kind` value, one file a built-in kind (names, columns, defaults, checks, warnings), kinds
made from CustomResourceDefinitions (`custom`) and the rules of their objects (`rules`), checks on metadata that
all kinds share, published schemas of the built-in kinds and the decoder of their protobuf form. Everything is
pure: values and functions on objects.

Not here: verbs and HTTP (`apiserver`), controllers, admission that reads other objects, and how schemas
prune, default and validate (`schema`).
"""
