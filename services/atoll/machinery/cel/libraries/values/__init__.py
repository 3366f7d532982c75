"""The values behind Kubernetes' own CEL types, as plain Python: addresses, URLs, quantities, versions and formats.

Here belongs reading a text into a value exactly as Kubernetes' Go code reads it, with its error texts, and what can
be asked of the value. Nothing here knows of expressions: declaring functions for them is the work of the modules one
level up, which turn the ValueErrors of this package into errors of an evaluation.
"""
