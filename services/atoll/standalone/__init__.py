"""Everything on one machine: a shard with its writer, an embedded NATS server, one process tree; in `site` many shards.

The embedded default of `atoll start`; `atoll shard` is the same shard on somebody else's NATS server. Belongs here:
starting and ending the parts in order, and what a person is told on the terminal. Does not belong here: any rule of the
parts.
"""
