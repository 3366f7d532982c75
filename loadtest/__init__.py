"""Benchmarks of the whole system: a real `atoll start`, real TLS, one scenario a file in `scenarios`.

    loadtest/run --quick

Prints what was reached beside the budget and writes the same as JSON. The server's process is bound to the first
core and the load to the second, so that neither measures the other. Does not belong here: assertions on speed, and
anything that leaves 127.0.0.1.
"""
