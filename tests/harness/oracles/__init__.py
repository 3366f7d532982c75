"""What knows the right answer apart from the product: Kubernetes' own code, published conformance tests, audit logs.

Models that replay what a test did belong to `models`; values without judgement belong to `data`.
"""
