"""Subscribers that are not the operator's: what they may name on NATS, and how the server learns who they are.

Here belongs what the server's configuration and the process that answers for it must agree on: accounts, subjects,
names, keys, and the requests by which a server asks who a client is. Whether somebody may see a resource is not decided
here. Invariant: all tenants share one account without streams, in which nobody can name what belongs to another.
"""
