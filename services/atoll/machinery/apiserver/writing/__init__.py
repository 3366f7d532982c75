"""Commits: a planned write submitted to the store, planned again after a conflict; and the loopback client.

Requests and controllers write through the same `WriteService`. Planning a write belongs to `apiserver.rest`.
"""
