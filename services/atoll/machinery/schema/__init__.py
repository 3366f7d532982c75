"""Schemas of objects: strict decoding, structural OpenAPI v3 schemas, validation of definitions, OpenAPI components.

Here belong: bytes to JSON values (`decoding`), values to YAML (`yaml_encoder`), schemas compiled once and walked for
every object (`structural`), the rules for CustomResourceDefinitions and APIResourceSchemas (`definitions`), and the
components of OpenAPI documents that follow from them (`openapi`). Everything is pure: values in, values and field
errors out.

Not here: kinds (`kinds`), the expressions of x-kubernetes-validations (`kinds.rules`), conversion, storage, and
authorization.
"""
