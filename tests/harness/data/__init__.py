"""What tests are given: sample objects, schemas, manifests of real projects, rows, stores in temporary directories.

Nothing here talks to a server, and nothing here judges an answer.
"""
