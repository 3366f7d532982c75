"""Processes for tests: shards, sites, nats-servers, cache servers, views of third parties.

`in_process` holds servers in the event loop of a test, `stand_ins` the servers that the product calls. A server ends
with its context. Clients of servers belong to `clients`.
"""
