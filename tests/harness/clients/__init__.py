"""Clients of servers: the HTTP API, kubectl, Go programs, subscribers, and steps that many tests share.

No client starts a server. Expected results belong to `oracles` and `models`.
"""
