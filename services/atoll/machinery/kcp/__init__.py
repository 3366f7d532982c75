"""kcp's own objects, built: what a shard writes at its first start and for each new workspace.

Here belong the shapes of LogicalClusters, Workspaces, APIExports, APIBindings and their kin, the rules by
which a workspace's type is resolved, a shard is chosen and the owner of a cluster is known, and the bootstrap
policy. Everything is a pure function from facts to objects: time, uids and keys come in, and nothing here reads a
store, asks a peer or serves a request.
Admission steps and controllers, which decide when these functions run and submit what they give, do not
belong here.
"""
