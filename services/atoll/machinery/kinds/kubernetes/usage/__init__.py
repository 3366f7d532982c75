"""What an object of Kubernetes' kinds uses of a ResourceQuota, beside being one object more.

What belongs here: one file a kind (`pods`, `volume_claims`, `services`, `resource_claims`), from stored JSON to a
`charge.Charge`, and `evaluators`, which says which kind an entry of `spec.hard` is about. What does not: rows, limits
and refusals (`storage`). Invariant: pure and total; what is malformed uses nothing. Sums are exact.
"""
