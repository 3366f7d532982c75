"""Replication: what other shards published, brought into this process's store and kept true.

Here belongs who is followed, when a row is written, dropped and told of, and how clients of other shards are made.
Whose rows count is reckoned in `machinery.kcp`, how a stream is read belongs to `machinery.stream`, how rows lie on
disk to `machinery.storage`, and what a controller does about an arrival to it.
"""
