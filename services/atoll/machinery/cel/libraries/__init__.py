"""Kubernetes' own libraries for CEL: one module each, and `base`, which selects the libraries of a Kubernetes version.

What belongs here: every function that Kubernetes adds to CEL with the type of its values, and Kubernetes' prices of
calls. A module declares functions; `values` implements the values. What does not belong here: cel-go's libraries
(`ext`), variables, schemas, and the authorizer behind `authorizer`, which callers provide.
"""
