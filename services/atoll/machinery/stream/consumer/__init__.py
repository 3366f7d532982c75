"""The consuming side: pull consumers, the state of a followed shard, and the gaps that make a consumer read again.

Here belongs how a stream is read and checked. What the events mean to their reader belongs to the reader: `replication`
keeps replicas of them, `atoll.events` hands them to third parties.
"""
