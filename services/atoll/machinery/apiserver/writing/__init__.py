"""Commits: a planned write submitted to the store, planned again after a conflict; and in-process writes.

Requests (`commit`) and controllers (`loopback`, `batch`, both from a `target`) write through one `WriteService`.
Planning a write belongs to `apiserver.rest`.
"""
