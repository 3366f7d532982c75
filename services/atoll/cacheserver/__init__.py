"""The cache server: the replicated objects of all shards over HTTP, for clients that do not read streams.

Here belong the process (`process`, `config`, `readiness`), the rows it makes of replicas (`rows`, `kinds`), and what it
serves (`shard_filter`, `cached_resources`, `server`) as the view `virtualworkspaces.cache`. Lists, watches, pages and
tables are those of every workspace.

Not here: following the streams (`replication`) and ownership of clusters (`machinery.kcp.sharding.ownership`).
Shards do not need a cache server; what clients write there is undone.
"""
