"""What every controller needs: a keyed work queue, and a manager that feeds it from the shard's own log.

Belongs here: queueing, back-off, dispatch of log entries, the saved position. Does not belong here: any rule of a
particular controller (`atoll.controllers`), and anything that writes objects.
"""
