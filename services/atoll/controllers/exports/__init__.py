"""The provider's side of an API: identities, endpoint slices, partitions, and resources cached for other shards.

Not here: APIBindings (`bindings`).
"""
