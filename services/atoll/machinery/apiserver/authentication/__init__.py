"""Authentication: from the credentials of a request to a `User`; and issuing service account tokens.

Belongs here: client certificates and their CAs, bearer tokens, identities forwarded by trusted proxies (signed
assertions, identity headers), impersonation, service account keys and tokens, OpenID Connect issuers. A shard, a front
proxy and a cache server assemble their authentication from these parts. Does not belong here: what the user may do
(`authorization`), TLS itself (`process.tls`), storing service accounts (`kinds`, `control`).
"""
