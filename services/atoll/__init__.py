"""Atoll: a kcp-compatible control plane.

A ring of islands around one lagoon: shards around one stream. Layers, upper may import lower, never the reverse:

    cli > standalone > shard > controllers > machinery
    machinery: apiserver | control > client | storage | stream > kinds | kcp > wire | schema | patch > meta | process
"""
