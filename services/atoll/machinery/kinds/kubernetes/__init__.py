"""Kubernetes' kinds that a workspace does not serve by itself: Deployments, Services, Pods, ... as data.

`tables` reads `schemas/native/kubernetes`, `structural` writes a component as the schema of a definition,
`resource_schemas` makes an APIResourceSchema of each kind, and `conditional_defaults` sets what no schema can say.
`served_kinds` makes the kinds, which `validation` and `strategies` check and complete; `usage` is what quotas count.
Invariant: nothing is read before the first call, so a shard on which nobody binds these kinds has only the code of
quotas and admission in memory, half a megabyte.
"""
