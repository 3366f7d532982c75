"""Workspaces and LogicalClusters: types, phases, mounts, default bindings, and the objects of a new workspace. Pure."""
