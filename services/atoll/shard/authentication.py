"""Credentials of a shard (keys, tokens, CAs), assembled into its authenticator.

The composition root calls `build_authentication` once. Generated credentials are files of the root directory with mode
0600; later starts reuse them.
"""

from __future__ import annotations

import ssl
from pathlib import Path

import msgspec

from atoll.machinery.apiserver.authentication import dynamic_client_ca
from atoll.machinery.apiserver.authentication.admin_tokens import AdminTokens, load_admin_tokens
from atoll.machinery.apiserver.authentication.authenticator import Authenticator, BearerTokens, WorkspaceSource
from atoll.machinery.apiserver.authentication.certificates import Certificates
from atoll.machinery.apiserver.authentication.dynamic_client_ca import ClientCAFiles, ClientCAs
from atoll.machinery.apiserver.authentication.impersonation import Impersonator
from atoll.machinery.apiserver.authentication.remote_owners import RemoteOwners
from atoll.machinery.apiserver.authentication.remote_service_accounts import RemoteServiceAccounts
from atoll.machinery.apiserver.authentication.request_headers import RequestHeaders
from atoll.machinery.apiserver.authentication.service_account_keys import KeySet
from atoll.machinery.apiserver.authentication.service_accounts import ServiceAccountIssuers, ServiceAccountTokens
from atoll.machinery.apiserver.authentication.token_issuer import TokenIssuer
from atoll.machinery.apiserver.authentication.tokens import StaticTokens, TokenSource, parse_token_file
from atoll.machinery.apiserver.authorization.authorizer import Authorizer
from atoll.machinery.kcp.bootstrap.batteries import ADMIN, USER
from atoll.machinery.meta.user import User
from atoll.machinery.process import pki
from atoll.machinery.process.config import comma_separated
from atoll.machinery.process.private_files import InvalidCredentials, Pair, PkiError, load_pair
from atoll.machinery.process.revocation import Revoked
from atoll.shard import service_account_keys
from atoll.shard.config import ShardConfig
from atoll.shard.kubeconfig import stored_admin_tokens

SERVING_CA, SERVING = "serving-ca", "apiserver"


class Credentials(msgspec.Struct, frozen=True):
    """Configured or generated credentials: serving pair and the CA for clients, token keys, administrator tokens."""

    ca_pem: bytes
    serving: Pair
    keys: KeySet
    tokens: AdminTokens | None
    client_ca_pem: bytes
    #: CAs of proxies that name users in headers.
    proxy_ca_pem: bytes
    #: Users of the token file by token digest.
    users: dict[bytes, User]
    #: Client certificates that name nobody any more.
    revoked: Revoked = frozenset()

    @property
    def context(self) -> ssl.SSLContext:
        """The TLS context of connections. The authenticator tells client and proxy certificates apart by their CA."""
        return ClientCAs(self.client_ca_pem, self.proxy_ca_pem).context(self.serving)


def load(config: ShardConfig, names: list[str], *, tokens: AdminTokens | None = None) -> Credentials:
    """Read the credentials of a root directory, generating missing ones. `names` go into the serving certificate.

    `tokens` are the administrator tokens that the writer process loaded. Raises InvalidCredentials, OSError.
    """
    root = Path(config.root_directory)
    ca_pem, serving = _serving(config, root, names)
    try:
        keys = service_account_keys.keys(config)
    except service_account_keys.KeyRefused as error:
        raise InvalidCredentials(str(error)) from error
    if ADMIN in config.batteries and tokens is None:
        kept = stored_admin_tokens(config.kubeconfig_file)
        tokens = load_admin_tokens(root, kept, with_user=USER in config.batteries)
    users = _token_file_users(config.token_auth_file)
    read = client_ca_files(config).read()
    return Credentials(ca_pem, serving, keys, tokens, read.clients, read.proxies, users, read.revoked)


def client_ca_files(config: ShardConfig) -> ClientCAFiles:
    """The files by which client certificates are verified, and those of the serving certificate."""
    serving = config.tls_cert_file, config.tls_private_key_file
    return ClientCAFiles(config.client_ca_file, config.requestheader_client_ca_file, serving, config.client_crl_file)


def _serving(config: ShardConfig, root: Path, names: list[str]) -> tuple[bytes, Pair]:
    """Return the CA that clients trust and the serving pair: configured, or generated."""
    try:
        if config.tls_cert_file:
            pair = load_pair(Path(config.tls_cert_file), Path(config.tls_private_key_file))
            # Without a root CA clients trust the certificate file itself: self-signed, or with its chain.
            return dynamic_client_ca.read(config.root_ca_file) or pair.certificate, pair
        ca = pki.load_or_make_ca(root, SERVING_CA, "atoll serving CA")
        trusted = dynamic_client_ca.read(config.root_ca_file) or ca.certificate
        return trusted, pki.load_or_make_serving(root, SERVING, ca, names)
    except PkiError as error:
        raise InvalidCredentials(str(error)) from error


def serving_files(config: ShardConfig) -> tuple[Path, Path]:
    """The files of the serving certificate and its key, which `load` made if they are not configured."""
    if config.tls_cert_file:
        return Path(config.tls_cert_file).absolute(), Path(config.tls_private_key_file).absolute()
    root = Path(config.root_directory).absolute()
    return root / f"{SERVING}.crt", root / f"{SERVING}.key"


def _token_file_users(file: str) -> dict[bytes, User]:
    if not file:
        return {}
    try:
        return parse_token_file(Path(file).read_text())
    except ValueError as error:
        raise InvalidCredentials(f"{file}: {error}") from error


class ShardAuthentication(msgspec.Struct, frozen=True):
    """The authenticator of a shard and its parts. `admins` and `listed`: the tokens of administrators, and those of
    the token file."""

    authenticator: Authenticator
    certificates: Certificates
    bearers: BearerTokens
    issuer: TokenIssuer
    issuers: ServiceAccountIssuers
    keys: KeySet
    admins: StaticTokens | None = None
    listed: StaticTokens | None = None


class ExternalIssuers(msgspec.Struct, frozen=True):
    """Sources of tokens of other issuers: for the whole installation, and per workspace type."""

    configured: TokenSource | None = None
    workspaces: WorkspaceSource | None = None
    #: Validates service accounts of other shards.
    accounts: RemoteServiceAccounts | None = None
    #: Finds their shards where not all are known.
    owners: RemoteOwners | None = None


def build_authentication(
    config: ShardConfig, credentials: Credentials, authorizer: Authorizer, external: ExternalIssuers
) -> ShardAuthentication:
    """Build the authenticator of a shard."""
    issuers = service_account_keys.issuers(config)
    tokens, users = credentials.tokens, credentials.users
    admins = StaticTokens(tokens.users, issuers.audiences) if tokens is not None else None
    listed = StaticTokens(users, issuers.audiences) if config.token_auth_file else None
    sources: list[TokenSource] = [source for source in (admins, listed) if source is not None]
    sources.append(ServiceAccountTokens(credentials.keys, issuers, remote=external.accounts, owners=external.owners))
    if external.configured is not None:
        sources.append(external.configured)
    bearers = BearerTokens(tuple(sources), issuers.audiences, external.workspaces)
    certificates = Certificates(
        credentials.client_ca_pem,
        credentials.proxy_ca_pem,
        comma_separated(config.requestheader_allowed_names),
        revoked=credentials.revoked,
    )
    headers = RequestHeaders(config.header_names)
    authenticator = Authenticator(bearers, certificates, Impersonator(authorizer), headers)
    issuer = TokenIssuer(credentials.keys, issuers, config.max_token_life_s)
    return ShardAuthentication(authenticator, certificates, bearers, issuer, issuers, credentials.keys, admins, listed)
