"""HTTP/1.1 on both sides of a socket: the server under every Atoll process and the client they call with.

Belongs here: parsing and framing, connections, limits, streaming with backpressure, gzip, drain, the connection pool.
Does not belong here: paths, verbs, identity, Kubernetes objects (only the Status of a request that never reached a
handler is written here). Nothing in this package knows a workspace.
"""
