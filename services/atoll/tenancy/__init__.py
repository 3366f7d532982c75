"""Tenancy: what admission, virtual workspaces, proxies and controllers ask of stored rows.

Look-ups of types, exports and paths, placement of new workspaces, building a logical cluster, bound definitions, claim
labels, and how far an object is replicated. `machinery.kcp` holds the rules without I/O, `tenancy` reads rows by those
rules, `controllers` write. What runs on its own, reacts to log entries or calls another shard does not belong here.
"""
