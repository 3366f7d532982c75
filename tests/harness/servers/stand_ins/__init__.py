"""Stand-ins for servers that the product calls: APIs with prepared answers, other shards, OIDC issuers, webhooks.

Each speaks real HTTPS and is no part of the product.
"""
