"""Data of tests: sample objects, schemas, manifests of real projects, rows, stores in temporary directories.

No module sends requests or checks answers.
"""
