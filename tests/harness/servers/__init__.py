"""What a test starts: shards, front proxies, cache servers, sites, nats-servers, issuers, webhooks.

A server is a process of its own or runs in the test's event loop; it ends with its context. What only talks to a server
belongs to `clients`.
"""
