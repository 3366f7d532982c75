"""The kinds that every logical cluster of a shard serves: Kubernetes' built-in ones and kcp's system CRDs.

The rules of each kind belong to `machinery.kinds`. Here belong the list of kinds, and the conversion of kcp's two kinds
with an older version.
"""
