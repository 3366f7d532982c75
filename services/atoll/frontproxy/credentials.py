"""The proxy's authentication, put together as its flags say. `process` calls `assemble` once.

Invariant: what the flags name is read whole before the proxy listens; a certificate of the proxy's own that shards
would take for a user's is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from atoll.controllers.facts import Facts, Identities
from atoll.frontproxy.authentication import GroupFilter, ProxyAuthentication
from atoll.frontproxy.config import FrontProxyConfig
from atoll.frontproxy.tokens import ServiceAccountTokens, TokenAuthentication
from atoll.machinery.apiserver.authentication import authorities
from atoll.machinery.apiserver.authentication.assertion import Assertions, signing_key
from atoll.machinery.apiserver.authentication.authorities import Authorities, CredentialsRefused
from atoll.machinery.apiserver.authentication.certificates import Certificates
from atoll.machinery.apiserver.authentication.headers import RequestHeaders
from atoll.machinery.apiserver.authentication.jwt import PublicKey
from atoll.machinery.apiserver.authentication.keys import key_id, public_keys
from atoll.machinery.apiserver.authentication.oidc import places
from atoll.machinery.apiserver.authentication.service_accounts import Issuers
from atoll.machinery.apiserver.authentication.tokens import KnownTokens, TokenSource, parse_token_file
from atoll.machinery.apiserver.call import View
from atoll.machinery.apiserver.egress import Egress
from atoll.machinery.apiserver.pathindex import PathIndex
from atoll.machinery.kcp.types import WorkspaceType
from atoll.machinery.process.config import comma_separated
from atoll.machinery.process.pki import Pair, issued_by, pem_to_der
from atoll.replication.rows import Types

#: kcp's gate; on unless turned off.
_WORKSPACES_OFF = "WorkspaceAuthentication=false"


#: Under which types root's own kinds are stored; None while that is not known.
KnownTypes: TypeAlias = Callable[[View], Types | None]


def assemble(config: FrontProxyConfig, pair: Pair, learned: KnownTypes, egress: Egress) -> ProxyAuthentication:
    """Authentication with the certificate that the proxy shows to shards. Raises CredentialsRefused, OSError."""
    trusted = trusted_authorities(config)
    try:
        key, der = signing_key(pair.key), pem_to_der(pair.certificate)
    except ValueError as error:
        raise CredentialsRefused(f"the proxy's client certificate cannot be used: {error}") from error
    if trusted.clients and issued_by(der, trusted.clients):
        # A request without credentials would count as the proxy's own, with whatever groups its certificate names.
        raise CredentialsRefused("the proxy's client certificate is of the authority of users: it needs one of its own")
    groups = GroupFilter(config.authentication_drop_groups, config.authentication_pass_on_groups)
    allowed = comma_separated(config.requestheader_allowed_names)
    certificates, headers = Certificates(trusted.clients, trusted.proxies, allowed), RequestHeaders(config.header_names)
    return ProxyAuthentication(_tokens(config, learned, egress), certificates, headers, groups, Assertions(key))


def trusted_authorities(config: FrontProxyConfig) -> Authorities:
    """Who vouches for users, and for proxies before this one. Raises CredentialsRefused, OSError."""
    return Authorities(*map(authorities.read, (config.client_ca_file, config.requestheader_client_ca_file)))


def _tokens(config: FrontProxyConfig, learned: KnownTypes, egress: Egress) -> TokenAuthentication:
    issuers = config.service_account_issuer or Issuers().names
    audiences = config.api_audiences or issuers
    sources: list[TokenSource] = []
    if config.token_auth_file:
        try:
            users = parse_token_file(Path(config.token_auth_file).read_text())
        except ValueError as error:
            raise CredentialsRefused(f"{config.token_auth_file}: {error}") from error
        sources.append(KnownTokens(users, audiences))
    if config.authentication_config:
        sources.append(places.configured(config.authentication_config, audiences, egress))
    accounts = ServiceAccountTokens(_account_keys(config.service_account_key_file), Issuers(issuers, audiences))
    workspaces = None
    if _WORKSPACES_OFF not in comma_separated(config.feature_gates):
        types = _WorkspaceTypes(learned)
        workspaces = places.of_workspaces(types.find, types.tenancy, egress)
    return TokenAuthentication(tuple(sources), accounts, audiences, workspaces)


class _WorkspaceTypes:
    """WorkspaceTypes as the shards published them; none before it is known what they are stored under."""

    def __init__(self, learned: KnownTypes) -> None:
        self._learned = learned
        self._facts: Facts | None = None
        self._types: Types | None = None
        self._count = -1

    def tenancy(self, view: View) -> str:
        facts = self._of(view)
        return facts.identities.tenancy if facts is not None else ""

    def find(self, view: View, path: str, name: str) -> WorkspaceType | None:
        facts = self._of(view)
        return facts.workspace_type(view, path, name) if facts is not None else None

    def _of(self, view: View) -> Facts | None:
        if view.there.count != self._count:
            self._count, types = view.there.count, self._learned(view)
            if types is not None and types != self._types:
                identities = Identities(tenancy=types.workspaces.identity, topology="", shards=types.shards.identity)
                self._types, self._facts = types, Facts(PathIndex(types.workspaces), identities)
        return self._facts


def _account_keys(files: tuple[str, ...]) -> dict[str, PublicKey]:
    found: dict[str, PublicKey] = {}
    for file in files:
        try:
            found.update((key_id(key), key) for key in public_keys(Path(file).read_bytes()))
        except (ValueError, TypeError) as error:
            raise CredentialsRefused(f"{file} holds no RSA or P-256 key of service account tokens") from error
    return found
