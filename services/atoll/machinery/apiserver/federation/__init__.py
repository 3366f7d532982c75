"""Look-ups across shards: workspace paths, and rows of remote clusters.

Both read the local rows first and then the replicas in the same transaction. Following other shards' streams does not
belong here (`atoll.replication`).
"""
