"""The API server: one pipeline from a parsed HTTP request to a mutation or to stored bytes.

Belongs here: what every Kubernetes API server does for every kind (request info, authentication,
authorization, admission, verbs, negotiation, discovery, OpenAPI). Does not belong here: anything about
particular kinds (`machinery.kinds`), about workspaces (`atoll.shard`), bytes on sockets (`machinery.wire`) or
on disk (`machinery.storage`).
"""
