"""kcp's admission plug-ins, in the order `plugins` gives.

Each protects one rule of tenancy; the machinery's own plug-ins (namespaces, RBAC escalation) come first. A plug-in
reads through the review's view, and what it concluded from it is a guard of the write where it matters.
"""
