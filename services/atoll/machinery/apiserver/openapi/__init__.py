"""OpenAPI publishing: the v3 index and its documents, the v2 document, as JSON and as gnostic protobuf.

Here belong: which operations a kind has (`routes`, `parameters`), how either version writes them down (`v3`, `v2`),
gnostic's protobuf form (`gnostic`, `gnostic_v2`, `gnostic_v3`), and who makes, keeps and shares documents
(`publisher`). `documents` serves them over HTTP.

Not here: what a kind's schema says (`machinery.schema`, `machinery.kinds.native_schemas`), and discovery.
"""
