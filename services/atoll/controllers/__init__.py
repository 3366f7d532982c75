"""The controllers of a shard, one file each, in packages by subject.

Each takes a key, reads state, writes with preconditions through the loopback client, and returns when to run again.
Keys come from the shard's own log; nothing here polls, and nothing is resident for a workspace that does not change.
Does not belong here: HTTP, admission, the work queues (`machinery.control`).
"""
