"""The consumer's side of an API: what is bound, the names and locks it holds, claims and their labels, unbinding.

Not here: what a binding's status says (`machinery.kcp.bindings`, which plans it), and admission (`shard.admission`).
"""
