"""Tokens of other issuers: OpenID Connect as Kubernetes' structured AuthenticationConfiguration describes it.

Belongs here: the configuration (`config`), the mapping of claims to a user (`mapping`), an issuer's key set
(`key_set`), fetching and refreshing it (`issuer_keys`), the token sources (`source`) and where issuers are configured
(`issuers`). Does not belong here: tokens that this installation issues (`service_accounts`), and outgoing connections
(`egress`).
"""
