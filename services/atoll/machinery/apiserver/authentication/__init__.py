"""Who asks: credentials in, a `User` out; and the tokens that service accounts get from us.

Belongs here: client certificates and the authorities behind them, bearer tokens, what a trusted proxy says (signed
assertions, identity headers), impersonation, service account keys and tokens, other issuers. A shard, a front proxy and
a cache server put their authentication together of these. Does not belong here: what the user may do
(`authorization`), TLS itself (`process.tls`), storing accounts (`kinds`, `control`).
"""
