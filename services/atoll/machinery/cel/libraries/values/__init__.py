"""The values behind Kubernetes' own CEL types, as plain Python: addresses, URLs, quantities, versions and formats.

What belongs here: parsing a text exactly as Kubernetes' Go code does, with its error texts, and the operations of the
value. What does not belong here: anything about expressions. The modules one level up declare functions and convert the
ValueErrors of this package to EvaluationErrors.
"""
