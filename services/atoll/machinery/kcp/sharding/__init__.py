"""Shards: which shard owns a cluster, where a new workspace goes, what is replicated and how far. Pure."""
