"""Expected results from sources other than the product: Kubernetes' own code, published conformance tests, audit logs.

Models that replay a test's operations belong to `models`; plain values belong to `data`.
"""
