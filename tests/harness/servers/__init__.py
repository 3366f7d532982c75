"""What a test starts: shards, sites, nats-servers, cache servers, views of third parties, each a process of its own.

`in_process` holds servers in the event loop of a test, `stand_ins` what the product calls. A server ends with its
context. What only talks to a server belongs to `clients`.
"""
