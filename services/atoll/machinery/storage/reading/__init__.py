"""Reads in one short transaction: records, snapshots, list pages, replicas of other shards, the log.

Nothing here writes, waits or keeps a transaction open across an await.
"""
