"""The API server: one pipeline from a parsed HTTP request to a mutation or to stored bytes.

Belongs here: what every server of the product does for every kind: request info, authentication, authorization (kcp's
included), workspace paths, admission, verbs, conversion, negotiation, discovery, OpenAPI. Does not belong here: rules
of particular kinds (`machinery.kinds`), what is composed for a shard alone (`atoll.shard`), bytes on sockets
(`machinery.wire`) or on disk (`machinery.storage`).
"""
