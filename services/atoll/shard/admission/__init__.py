"""kcp's admission plug-ins; `plugins` defines their order.

Each enforces one tenancy rule. The machinery's own plug-ins (namespaces, RBAC escalation) run first. A plug-in reads
through the review's view; where a later change would invalidate its result, the write carries a guard for it.
"""
