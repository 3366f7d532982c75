"""The cache server: what all shards replicate, over HTTP, for clients that do not read streams.

Here belong the process (`process`, `config`), the rows that it makes of replicas (`rows`, `kinds`), and the API under
`/services/cache/` (`content`, `part`, `server`). Lists, watches, pages and tables are those of every workspace.

Not here: following the streams (`replication`), whose rows count (`machinery.kcp.ownership`), and writing. Shards do
not need a cache server; nothing is written through it.
"""
