"""Atoll: a kcp-compatible control plane, with every change on a stream.

Layers, upper may import lower, never the reverse; siblings (`|`) do not import each other:

    cli > standalone > shard | frontproxy | cacheserver | eventgateway | virtualworkspace_sdk | edge | syncer >
        controllers | virtualworkspaces > tenancy > replication | events > machinery
    machinery: apiserver | control > egress > client | storage | stream > kcp > kinds | edge >
        wire | schema | patch | cel > meta | process
"""
