"""Requests that a shard answers in its own way: home workspaces, LogicalClusters ordered by other shards, reviews."""
