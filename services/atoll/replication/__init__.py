"""Replication: replicas of what other shards publish, kept current in this process's store.

Here belongs which shards are followed, when a replica is written or dropped, who is notified, and how clients of other
shards (peers) are made. Which shard owns a cluster is resolved in `machinery.kcp.sharding`; reading a stream belongs to
`machinery.stream`, the layout on disk to `machinery.storage`, and reacting to a change to the controllers.
"""
