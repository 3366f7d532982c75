"""The consumer's side of an API: binding and unbinding, names and locks, permission claims and their labels.

Not here: the rules of a binding's status (`machinery.kcp.apis.apibindings`), and admission (`shard.admission`).
"""
