"""Tokens of other issuers: OpenID Connect as Kubernetes' structured AuthenticationConfiguration describes it.

Here belong: what a configuration says (`config`), from claims to a user (`mapping`), signatures (`jws`), the keys of an
issuer (`keys`) and the token sources made of these (`source`, for the installation and for each workspace's own).

Not here: tokens that we issue ourselves (`service_accounts`), and who fetches (`egress`).
"""
