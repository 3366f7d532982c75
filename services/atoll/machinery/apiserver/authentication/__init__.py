"""Who asks: credentials in, a `User` out; and the tokens that service accounts get from us.

Belongs here: client certificates, bearer tokens, identity headers of a trusted proxy, impersonation, service
account keys and tokens, OIDC discovery of our own issuer. Does not belong here: what the user may do
(`authorization`), TLS itself (`process.tls`), storing accounts (`kinds`, `control`).
"""
