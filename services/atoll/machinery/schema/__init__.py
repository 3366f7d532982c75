"""Schemas of objects: strict decoding, structural OpenAPI v3 schemas, checks of definitions, what is published.

Here belong: bytes to JSON values (`decode`), schemas compiled once and walked many times (`structural`), the rules
that a CustomResourceDefinition or an APIResourceSchema must keep (`crd`), and the pieces of OpenAPI documents that
follow from them (`openapi`). Everything is pure: values in, values and field errors out.

Not here: what a kind is (`kinds`), expressions in x-kubernetes-validations (`kinds.rules`), conversion, storage, and
who may write what.
"""
