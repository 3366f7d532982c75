"""Look-ups that span shards: workspace paths, and rows of clusters that lie on other shards.

Both read the local rows first and then the replicas in the same transaction. Following other shards' streams does not
belong here (`atoll.replication`).
"""
