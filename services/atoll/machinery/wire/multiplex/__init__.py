"""Many connections over one: streams between a front proxy and a shard, each a transport of its own.

Belongs here: the frames, their flow control, the virtual transports, and what speaks on the connection that carries
them, on either side. Does not belong here: HTTP, which the same classes speak over a stream as over a socket.
"""
