"""Everything on one machine: a shard with its writer, an embedded NATS server, one process tree; in `site` many shards.

`atoll start` runs it with an embedded NATS server; `atoll shard` runs the same shard with an external one. Belongs
here: starting and stopping the parts in order, and the text on the terminal. Does not belong here: the behaviour of a
part.
"""
