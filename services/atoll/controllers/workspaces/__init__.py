"""Workspaces and their logical clusters: scheduling, phases, mounts, deletion.

A cluster may lie on another shard than its Workspace: `tenancy.placement` chooses the shard, `remote_workspaces`
handles such Workspaces through `remote_logicalclusters`, and `owner_notifications` runs on the cluster's shard. A
workspace is built with its bindings, so this package may import `bindings`. Not here: bindings made afterwards.
"""
