"""The machinery of controllers: a keyed work queue, its workers, and a manager that feeds it from the shard's own log.

What belongs here: queueing, back-off, dispatch of log entries, the saved position. What does not belong here: rules of
a particular controller (`atoll.controllers`), and writes to objects.

A controller inside a shard implements `manager.Controller`. One outside feeds a `queue.WorkQueue` from a
`client.Informer` and runs `worker.work`; `client/README.md` has a complete example.
"""
