"""Code shared by tests: servers, clients of servers, oracles and models that give the expected result, data.

No module asserts the subject of a test, and none replaces a module of the product.
"""
