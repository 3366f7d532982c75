"""The store of a shard: one LMDB environment with objects, their ordered log, indexes and counters.

Here belongs everything that touches LMDB: key encoding, the hybrid clock, group commit, snapshots, list slices, watch
cursors over the log, compaction, sealing at rest, fsck, rows that other shards published with the routes by which they
count, and the seam by which API workers reach the writer. What an object means (schemas, admission, RBAC, verbs) does
not belong here; of an object the store reads only the metadata it indexes. Nothing outside this package imports `lmdb`.
"""
