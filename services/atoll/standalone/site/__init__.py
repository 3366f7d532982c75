"""A whole site on one machine: NATS, shards, a front proxy, one process each, from one root directory.

Here belongs what an operator of several machines does by hand: authorities and certificates, who may do what on NATS,
which process is told what, and that each runs. Does not belong here: anything that a shard or a proxy does itself; they
are started as `atoll shard` and `atoll front-proxy`, by flags that anybody can give.
"""
