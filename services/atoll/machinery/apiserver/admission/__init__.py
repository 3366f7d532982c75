"""Admission: the chain and the plug-ins of every Kubernetes API server.

Belongs here: the chain and the plug-ins every Kubernetes API server has (namespace lifecycle, RBAC escalation).
Workspace plug-ins live in `atoll.shard.admission`. A plug-in sees one `Review`, changes its object or raises; it
never writes, and what it read it may nail down as guards of the write's own transaction.
"""
