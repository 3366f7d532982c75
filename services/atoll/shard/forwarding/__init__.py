"""Requests that another server answers: mounts, virtual resources, and views of other shards."""
