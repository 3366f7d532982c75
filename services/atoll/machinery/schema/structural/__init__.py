"""Structural schemas: compiled once from OpenAPI v3, then walked for every object.

Here belongs what a write does with a schema: prune, default, validate (with ratcheting), list unknown fields.
`structural_schema` is the entry point; `compiler` builds the nodes that the other modules walk. Not here: whether a
schema may be stored (`definitions`).
"""
