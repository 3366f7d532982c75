"""The controllers of a shard, one file each, in packages by subject.

Each takes a key, reads state, writes with preconditions through the loopback client, and returns when to run again.
Keys are derived from the shard's own log; there is no polling, and an unchanged workspace uses no memory.
Does not belong here: HTTP, admission, the work queues (`machinery.control`).
"""
