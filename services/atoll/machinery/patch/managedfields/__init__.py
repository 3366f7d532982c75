"""Field management: which manager owns which field of an object, and server-side apply.

Here belongs what reads or writes `metadata.managedFields`: `apply` and `update` are the entry points, `managers` holds
the entries. Not here: how values compare and merge (`structuredmerge`), and when a write is tracked (apiserver).
"""
