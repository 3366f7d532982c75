"""Tenancy: look-ups in stored rows for admission, virtual workspaces, proxies and controllers.

Look-ups of types, exports and paths, placement of new workspaces, building a logical cluster, bound definitions, claim
labels, and the replication scope of objects. `machinery.kcp` has the rules without I/O, `tenancy` reads rows for those
rules, `controllers` write. Background work, reactions to log entries and calls to other shards do not belong here.
"""
