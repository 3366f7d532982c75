"""HTTP/1.1 on both sides of a socket: the server of every Atoll process, and the client they call others with.

Belongs here: parsing and framing, connections, limits, streaming with backpressure, gzip, drain, the connection pool,
the streaming reverse proxy (`proxy`), and connections that are streams of another (`multiplex`). Does not belong here:
paths, verbs, identity, workspaces, and Kubernetes objects, except the Status of a request that never reached a handler.
"""
