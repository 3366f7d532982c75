"""Servers in the test's own event loop: shards, front proxies, cache servers, publishers, followers, wire servers.

Tests access their internals. Servers in separate processes belong to `harness.servers`.
"""
