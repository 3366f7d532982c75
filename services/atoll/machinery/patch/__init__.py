"""Patches and ownership of fields: JSON patch, merge patch, strategic merge patch, server-side apply.

Here belongs what turns an object and a patch into another object, and what decides who owns which field of
it. It is pure: values in, new values out, inputs unmodified. What does not belong here: reading bodies, HTTP
(wire), defaulting, pruning and validating (schema), the order of steps on a write (apiserver). SchemaLookup come
in as OpenAPI v3 dictionaries, never as types of another package; the only import is `machinery.meta`.
"""
