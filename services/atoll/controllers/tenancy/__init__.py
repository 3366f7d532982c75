"""Workspaces and the logical clusters behind them: made, moved on, mounted, emptied and let go.

A workspace is built with its bindings, so this may import `bindings`. Not here: what a workspace binds afterwards.
"""
