"""JetStream: how a shard's log reaches everybody who is not that shard.

Here belongs all that touches NATS: subjects, the form of an event, the definitions of the two streams, the
publisher that tails the log, consumers that check what they receive, and the embedded server with its
credentials. What a change means to its reader (routes, replicas, work queues) does not belong here, nor does
the store: the publisher sees a log through the protocol in `log`. Nothing outside this package imports
`nats`, and nothing in it imports `nats` before a connection is made, because that import alone costs a
tenth of a second of a process's start.
"""
