"""In-memory models of parts of the product: a log, a snapshot, a projection, ownership of clusters.

A model follows the contract of its part; tests compare the product with it or run on it.
"""
