"""Controllers known from Kubernetes: namespaces, garbage collection, ClusterRole aggregation, tokens, CRDs.

Not here: controllers of kcp's types (`workspaces`, `exports`, `bindings`).
"""
