"""Patches and field ownership: JSON patch, merge patch, strategic merge patch, server-side apply.

Here belongs what computes a new object from an object and a patch, and which manager owns which of its fields
(`managedfields`). Everything is pure: values in, new values out, inputs unmodified. Not here: reading bodies
(apiserver), defaulting, pruning and validation (schema), the order of steps of a write (apiserver). Schemas come in as
OpenAPI v3 dictionaries, never as types of another package; the only import is `machinery.meta`.
"""
