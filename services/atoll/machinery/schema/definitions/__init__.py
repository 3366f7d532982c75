"""Validation of CustomResourceDefinitions and APIResourceSchemas.

Here belongs what decides whether a definition may be stored: its names, versions, conversion, approval and the schemas
of its versions. `crd` is the entry point. Not here: validating objects (`structural`), compiling
x-kubernetes-validations (`kinds.rules`).
"""
