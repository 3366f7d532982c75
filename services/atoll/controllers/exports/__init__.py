"""The provider's side of an API: identities, endpoint slices, partitions, and what is cached for other shards.

Not here: who binds an export (`bindings`).
"""
