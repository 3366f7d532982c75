"""The kinds that every logical cluster of a shard serves: Kubernetes' built-in ones and kcp's system CRDs.

The kinds' own rules are those of `machinery.kinds`; here they are put together, and kcp's two kinds with an older
version are given their conversion.
"""
