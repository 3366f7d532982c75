"""OpenAPI publishing: the v3 index and its documents, the v2 document, as JSON and as gnostic protobuf.

Belongs here: the operations of a kind (`routes`, `parameters`), their encoding in either version (`v3`, `v2`),
gnostic's protobuf form (`gnostic`, `gnostic_v2`, `gnostic_v3`), and the building and caching of documents
(`publisher`). `serving` answers HTTP requests for them.

Not here: what a kind's schema says (`machinery.schema`, `machinery.kinds.native_schemas`), and discovery.
"""
