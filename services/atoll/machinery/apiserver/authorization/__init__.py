"""Authorization: kcp's chain of authorizers, RBAC, warrants and scopes, escalation checks.

Belongs here: every decision whether an authenticated user may do something in a logical cluster, and the texts of the
refusals. Does not belong here: authentication (`authentication`), validation of a kind's fields (`kinds`, `admission`),
the bootstrap roles (`kcp.bootstrap.rbac`).
"""
