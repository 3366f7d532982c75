"""Summaries of what edge clusters report: rules and data, no I/O.

What belongs here: StatusCollectors as compiled values, the row of one copy, tables of rows, and what counts as broken.
What does not: reading copies and writing summaries, which `atoll.edge.summarizer` does. A syncer has no expressions, so
nothing that it uses imports this package.
"""
