"""Servers in the test's own event loop: shards, front proxies, cache servers, publishers, followers, wire servers.

A test reaches into them. What runs as a process of its own belongs to `harness.servers`.
"""
