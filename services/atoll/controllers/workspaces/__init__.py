"""Workspaces and the logical clusters behind them: made, moved on, mounted, emptied and let go.

A cluster may lie on another shard than its Workspace: `placement` chooses, `children` looks after such Workspaces by
calls of `elsewhere`, and `owners` is the other side, on the cluster's shard. A workspace is built with its bindings,
so this may import `bindings`. Not here: what a workspace binds afterwards.
"""
