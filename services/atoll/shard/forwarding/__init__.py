"""Requests forwarded to another server: mounts, virtual resources, and virtual workspaces of other shards."""
