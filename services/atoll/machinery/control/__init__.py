"""What every controller needs: a keyed work queue, its workers, and a manager that feeds it from the shard's own log.

Belongs here: queueing, back-off, dispatch of log entries, the saved position. Does not belong here: any rule of a
particular controller (`atoll.controllers`), and anything that writes objects.

A controller inside a shard implements `manager.Controller`. One outside feeds a `queue.WorkQueue` from a
`client.Informer` and runs `worker.work`; `client/README.md` shows it whole.
"""
