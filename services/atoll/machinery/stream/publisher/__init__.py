"""The publishing side of a shard: from its log into its two streams.

Here belongs what reads the log, writes the streams, resumes after an interruption, and checks and repairs what was
written. The log and the choice of kinds are protocols (`log_source`): the store and kcp's kinds are not known here.
"""
