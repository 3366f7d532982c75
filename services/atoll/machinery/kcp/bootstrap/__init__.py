"""Objects that exist before the first request: system clusters, root, and the default RBAC. Pure."""
