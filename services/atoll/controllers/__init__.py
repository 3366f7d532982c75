"""What a shard reconciles beyond answering requests, one file a controller, in packages by subject.

Each takes a key, reads state, acts with preconditions through the loopback client, and says when to look again.
Fed by the shard's own log; nothing here polls, and nothing is resident for a workspace that does not change.
Does not belong here: HTTP, admission, how queues work (`machinery.control`).
"""
