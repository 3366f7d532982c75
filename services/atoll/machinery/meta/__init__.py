"""Common values of all layers: names, objects, errors, users, selectors, conditions, times, hashes.

Belongs here: values and pure functions with no I/O that any layer may need. Does not belong here: anything that knows
HTTP, storage, or a particular kind.
"""
