"""Special handlers of a shard: home workspaces, LogicalClusters created for other shards, access and token reviews."""
