"""Kubernetes' own libraries for CEL: a module for each, and `base`, which tells which of them an expression may use.

Here belongs every function that Kubernetes adds to CEL, with the type of its values, and what Kubernetes charges for
calls. A module declares functions in terms of the package above and leaves the work on values to `values`. What
cel-go brings (strings, sets, lists, comprehensions) is in `ext` beside this package; variables, schemas and the
authorizer that answers are the caller's.
"""
