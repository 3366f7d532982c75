"""The front proxy: one address for all shards.

Belongs here: finding the shard of a request, authentication as far as the proxy can, identity headers towards backends,
and the proxy's own endpoints. Its only state is the rows that shards published, in its own store, so any number of
proxies run independently. Does not belong here: carrying bytes (`wire.proxy`), and authorization, which is the shard's.
"""
