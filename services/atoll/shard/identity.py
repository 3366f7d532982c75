"""Who may come in: keys, tokens and authorities of a shard, assembled into its authenticator.

The composition root calls `assemble` once; what is generated stays in the root directory, readable by its owner
alone, and a later start goes on with it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from atoll.machinery.apiserver.authentication.admin_tokens import FILE_NAME, AdminTokens, load_admin_tokens
from atoll.machinery.apiserver.authentication.authenticator import Authenticator, Bearers
from atoll.machinery.apiserver.authentication.certificates import Certificates
from atoll.machinery.apiserver.authentication.impersonation import Impersonator
from atoll.machinery.apiserver.authentication.issuing import TokenIssuer
from atoll.machinery.apiserver.authentication.keys import KeySet, load_keys
from atoll.machinery.apiserver.authentication.service_accounts import Issuers, ServiceAccountTokens
from atoll.machinery.apiserver.authentication.tokens import KnownTokens, TokenSource, parse_token_file
from atoll.machinery.apiserver.authorization.chain import Authorizer
from atoll.machinery.process import pki
from atoll.machinery.process.pki import Pair
from atoll.shard.config import ShardConfig
from atoll.shard.kubeconfig import kept_admin_token

SERVING_CA, SERVING = "serving-ca", "apiserver"


class Credentials(msgspec.Struct, frozen=True):
    """What a shard was given or made: its serving pair and CA, token keys, administrators' tokens."""

    ca: Pair
    serving: Pair
    keys: KeySet
    tokens: AdminTokens | None
    client_ca_pem: bytes


def load(config: ShardConfig, names: list[str], *, tokens: AdminTokens | None = None) -> Credentials:
    """Read the credentials of a root directory, making what is missing. `names` go into the certificate.

    `tokens` are the administrators' tokens that another process of this shard made.
    """
    root = Path(config.root_directory)
    ca = pki.ca_in(root, SERVING_CA, "atoll serving CA")
    serving = pki.serving_in(root, SERVING, ca, names)
    keys = load_keys(pki.rsa_key_in(root / "sa.key"))
    if not config.skip_admin_user and tokens is None:
        tokens = load_admin_tokens(root / FILE_NAME, kept_admin_token(root))
    client_ca = Path(config.client_ca_file).read_bytes() if config.client_ca_file else b""
    return Credentials(ca, serving, keys, tokens, client_ca)


class Identity(msgspec.Struct, frozen=True):
    """The assembled parts."""

    authenticator: Authenticator
    bearers: Bearers
    issuer: TokenIssuer
    issuers: Issuers
    keys: KeySet


def assemble(config: ShardConfig, credentials: Credentials, authorizer: Authorizer) -> Identity:
    """The authenticator of a shard."""
    issuers = Issuers()
    sources: list[TokenSource] = []
    if credentials.tokens is not None:
        sources.append(KnownTokens(credentials.tokens.users, issuers.audiences))
    if config.token_auth_file:
        users = parse_token_file(Path(config.token_auth_file).read_text())
        sources.append(KnownTokens(users, issuers.audiences))
    sources.append(ServiceAccountTokens(credentials.keys, issuers))
    bearers = Bearers(tuple(sources), issuers.audiences)
    authenticator = Authenticator(bearers, Certificates(credentials.client_ca_pem), Impersonator(authorizer))
    return Identity(authenticator, bearers, TokenIssuer(credentials.keys, issuers), issuers, credentials.keys)


