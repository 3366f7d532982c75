"""A shard: the API server of the logical clusters it holds, with kcp's tenancy, its store and its stream.

Serves HTTPS for `/clusters/<path or name>/...`; writes `atoll.changes.<shard>.>` and `atoll.state.<shard>.>`. Here
belong the parts that add workspaces to the Kubernetes machinery: bootstrap, kcp's admission plug-ins, special handlers,
forwarding, and the composition root. Does not belong here: verbs (`machinery.apiserver`), reconciling (`controllers`).
"""
