"""What the product calls and the tests play: APIs with prepared answers, other shards, OIDC issuers, webhooks.

Each speaks real HTTPS and is no part of the product.
"""
