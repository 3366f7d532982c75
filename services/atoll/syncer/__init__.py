"""The process `atoll syncer`: carries what a mailbox lists to one edge cluster, and what the cluster reports back.

It runs in the edge cluster and dials the center. The rules are in `machinery.edge`; here is the I/O around them. It
knows the center by its API alone, so nothing of a shard, a store or a stream belongs here.
"""
