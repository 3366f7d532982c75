"""JetStream: how a shard's log reaches other processes.

Here belongs everything that uses NATS: subjects, the form of an event, stream definitions and permissions, the
publisher that tails the log (`publisher`), consumers that check what they read (`consumer`), and the embedded server
(`server`). What a change means to its reader (routes, replicas, work queues) does not belong here, nor does the
store: the publisher sees a log through a protocol. Only this package imports `nats`, and only when a connection is
opened: that import alone takes a tenth of a second of a process's start.
"""
