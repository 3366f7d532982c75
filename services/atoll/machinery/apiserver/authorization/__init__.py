"""Who may do what: kcp's chain of authorizers, RBAC, warrants and scopes, escalation checks.

Belongs here: everything that decides whether an authenticated user may do something in a logical cluster, and
the texts in which a refusal is told. Does not belong here: finding out who the user is (`authentication`),
rules about one kind's fields (`kinds`, `admission`), the bootstrap roles themselves (`atoll.shard`).
"""
