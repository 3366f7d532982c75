"""What tests share: servers they start, clients of these, oracles and models that know the right answer, data.

Nothing here asserts on its own account what a test is about, and nothing here replaces a module of the product.
"""
