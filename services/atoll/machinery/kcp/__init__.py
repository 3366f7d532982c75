"""Rules of kcp's own objects: how each is built, and how its status is computed.

Here belong the content and status of LogicalClusters, Workspaces, APIExports, APIBindings and related kinds, the
resolution of WorkspaceTypes, the choice of a shard, the ownership of clusters, and the bootstrap objects. All functions
are pure: time, uids and keys are arguments; no function reads a store, calls a peer or serves a request.
Admission steps and controllers, which call these functions and write the results, do not belong here.
"""
