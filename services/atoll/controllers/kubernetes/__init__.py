"""What Kubernetes' own controllers do in every cluster: namespaces, garbage, roles, accounts, definitions.

Not here: anything that only kcp has (`tenancy`, `exports`, `bindings`).
"""
