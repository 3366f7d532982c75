"""Subscriptions of tenants to a shard's events: asked for over HTTPS, read from NATS.

Here belongs what the shard that holds a workspace decides about them: who sees what, for how long, and within which
bounds. `view` takes the requests of any process of the shard, `keeper` decides in the writer's. What tenants may name
on NATS is in `machinery.stream.tenants`. Invariant: no consumer stands for whom an authorized watch would not admit.
"""
