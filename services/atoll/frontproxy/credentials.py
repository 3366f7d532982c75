"""Builds the proxy's authentication from its flags. `process` calls `build_authentication` once.

Invariant: every file that a flag names is read before the proxy listens; a client certificate of the proxy's own that
shards would accept as a user's is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from atoll.frontproxy.authentication import GroupFilter, ProxyAuthentication
from atoll.frontproxy.config import WORKSPACE_AUTHENTICATION, FrontProxyConfig
from atoll.frontproxy.tokens import ServiceAccountTokens, TokenAuthentication
from atoll.machinery.apiserver.authentication.assertion import AssertionSigner, signing_key
from atoll.machinery.apiserver.authentication.certificates import Certificates
from atoll.machinery.apiserver.authentication.dynamic_client_ca import ClientCAFiles
from atoll.machinery.apiserver.authentication.jwt import PublicKey
from atoll.machinery.apiserver.authentication.oidc import issuers
from atoll.machinery.apiserver.authentication.remote_service_accounts import AccountCheck, RemoteServiceAccounts
from atoll.machinery.apiserver.authentication.request_headers import RequestHeaders
from atoll.machinery.apiserver.authentication.service_accounts import ServiceAccountIssuers
from atoll.machinery.apiserver.authentication.tokens import StaticTokens, TokenSource, parse_token_file
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.federation.pathindex import PathIndex
from atoll.machinery.egress import Egress
from atoll.machinery.kcp.workspaces.workspacetypes import WorkspaceType
from atoll.machinery.process import feature_gates as gates
from atoll.machinery.process.config import comma_separated
from atoll.machinery.process.pki import issued_by, pem_to_der
from atoll.machinery.process.private_files import InvalidCredentials, Pair
from atoll.replication.root_types import RootTypes
from atoll.tenancy.lookups import Lookups, SystemIdentities

#: The types that root's own kinds are stored under; None while unknown.
TypesReader: TypeAlias = Callable[[View], RootTypes | None]


def build_authentication(
    config: FrontProxyConfig,
    pair: Pair,
    types: TypesReader,
    egress: Egress,
    keys: Mapping[str, PublicKey],
    check: AccountCheck | None = None,
) -> ProxyAuthentication:
    """Authentication with the certificate that the proxy shows to shards; `check` confirms service accounts, whose
    tokens are signed by one of `keys`.

    Raises InvalidCredentials, OSError.
    """
    trusted = client_ca_files(config).read()
    try:
        key, der = signing_key(pair.key), pem_to_der(pair.certificate)
    except ValueError as error:
        raise InvalidCredentials(f"the proxy's client certificate cannot be used: {error}") from error
    if trusted.clients and issued_by(der, trusted.clients):
        # A request without credentials would count as the proxy's own, with the groups of its certificate.
        raise InvalidCredentials("the proxy's client certificate is of the authority of users: it needs one of its own")
    groups = GroupFilter(config.authentication_drop_groups, config.authentication_pass_on_groups)
    allowed = comma_separated(config.requestheader_allowed_names)
    certificates = Certificates(trusted.clients, trusted.proxies, allowed, revoked=trusted.revoked)
    headers = RequestHeaders(config.header_names)
    return ProxyAuthentication(
        _tokens(config, types, egress, keys, check), certificates, headers, groups, AssertionSigner(key)
    )


def client_ca_files(config: FrontProxyConfig) -> ClientCAFiles:
    """The files with the authorities of users and of proxies in front of this one, and with what is revoked."""
    serving = config.tls_cert_file, config.tls_private_key_file
    return ClientCAFiles(config.client_ca_file, config.requestheader_client_ca_file, serving, config.client_crl_file)


def _tokens(
    config: FrontProxyConfig,
    types: TypesReader,
    egress: Egress,
    keys: Mapping[str, PublicKey],
    check: AccountCheck | None,
) -> TokenAuthentication:
    names = config.service_account_issuer or ServiceAccountIssuers().names
    audiences = config.api_audiences or names
    sources: list[TokenSource] = []
    if config.token_auth_file:
        try:
            users = parse_token_file(Path(config.token_auth_file).read_text())
        except ValueError as error:
            raise InvalidCredentials(f"{config.token_auth_file}: {error}") from error
        sources.append(StaticTokens(users, audiences))
    if config.authentication_config:
        sources.append(issuers.configured(config.authentication_config, audiences, egress))
    accounts = ServiceAccountTokens(
        keys,
        ServiceAccountIssuers(names, audiences),
        shards=RemoteServiceAccounts(check) if check is not None else None,
    )
    workspaces = None
    if gates.parse(config.feature_gates).get(WORKSPACE_AUTHENTICATION, True):
        workspace_types = _WorkspaceTypes(types)
        workspaces = issuers.of_workspaces(workspace_types.find, workspace_types.tenancy, egress)
    return TokenAuthentication(tuple(sources), accounts, audiences, workspaces)


class _WorkspaceTypes:
    """WorkspaceTypes as the shards published them; none before their types are known."""

    def __init__(self, types: TypesReader) -> None:
        self._read_types = types
        self._facts: Lookups | None = None
        self._types: RootTypes | None = None
        self._count = -1

    def tenancy(self, view: View) -> str:
        facts = self._of(view)
        return facts.identities.tenancy if facts is not None else ""

    def find(self, view: View, path: str, name: str) -> WorkspaceType | None:
        facts = self._of(view)
        return facts.workspace_type(view, path, name) if facts is not None else None

    def _of(self, view: View) -> Lookups | None:
        if view.replicas.count != self._count:
            self._count, types = view.replicas.count, self._read_types(view)
            if types is not None and types != self._types:
                identities = SystemIdentities(
                    tenancy=types.workspaces.identity, topology="", shards=types.shards.identity
                )
                self._types, self._facts = types, Lookups(PathIndex(types.workspaces), identities)
        return self._facts
