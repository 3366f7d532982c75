"""A site (kcp: sharded deployment) on one machine: NATS, shards and a front proxy, one process each.

Belongs here: what an operator of several machines does by hand, that is CAs and certificates, permissions on NATS, the
flags of each process, and restarts. Does not belong here: the behaviour of a shard or a proxy; they are started as
`atoll shard` and `atoll front-proxy` with documented flags.
"""
