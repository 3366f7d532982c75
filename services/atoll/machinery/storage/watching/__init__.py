"""Watches: cursors over the log, and which of them a commit wakes.

Everything here lives in one event loop. Reading the log itself is `reading.log_reader`.
"""
