"""`atoll event-gateway`: serves health and metrics, and answers a NATS server, until SIGTERM.

`cli` calls `start`. It prints its URL on standard output once it listens. Invariant: every file that a flag names is
read before the process listens; no HTTP of a subscriber is served, as who has the keys may do everything on the server.
"""

from __future__ import annotations

import asyncio
import functools
import sys
from pathlib import Path

import msgspec
import structlog
from prometheus_client import CollectorRegistry, ProcessCollector

from atoll.eventgateway.config import EventGatewayConfig
from atoll.eventgateway.gateway import build_gateway
from atoll.machinery.apiserver.authentication.event_tokens import EventTokens
from atoll.machinery.apiserver.authentication.jwt import PublicKey
from atoll.machinery.apiserver.authentication.service_account_keys import read_public_keys, reload_public_keys
from atoll.machinery.apiserver.authentication.service_accounts import ServiceAccountIssuers
from atoll.machinery.apiserver.serving.health_server import HealthServer
from atoll.machinery.process.certificate_expiry import CertificateExpiry
from atoll.machinery.process.file_watch import renew_server
from atoll.machinery.process.freed_memory import return_freed_memory
from atoll.machinery.process.lifetime import Lifetime
from atoll.machinery.process.listen_address import take_port
from atoll.machinery.process.private_files import InvalidCredentials, Pair
from atoll.machinery.process.serving_pair import serving_pair
from atoll.machinery.process.tls import server_context
from atoll.machinery.storage.environment.filesystem import require_local
from atoll.machinery.stream.connection import Access
from atoll.machinery.stream.credential_file import read_access
from atoll.machinery.stream.tenants.auth_callout import CalloutKeys
from atoll.machinery.stream.tenants.gateway import Gateway
from atoll.machinery.stream.tenants.key_files import read_gateway_keys
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.server import Server

log = structlog.get_logger()

SERVING = "event-gateway"
DRAIN_S = 10.0


class GatewayFiles(msgspec.Struct, frozen=True):
    """The contents of the files that the settings name."""

    access: Access
    keys: CalloutKeys
    #: Of service account tokens and event tokens.
    public_keys: dict[str, PublicKey]
    tokens: EventTokens
    serving: Pair
    clients: bytes


async def start(config: EventGatewayConfig) -> None:
    """Run until SIGTERM or SIGINT.

    Raises InvalidCredentials, InvalidCredentialFile, PkiError, OSError, BackgroundWorkFailed.
    """
    root, registry = Path(config.directory), CollectorRegistry()
    if not config.allow_any_filesystem:
        require_local(root)
    await asyncio.to_thread(root.mkdir, mode=0o700, parents=True, exist_ok=True)
    files = await asyncio.to_thread(_read, config)
    try:
        gateway = build_gateway(files.access, files.keys, files.tokens, registry, config.connections_per_identity)
    except ValueError as error:
        raise InvalidCredentials(f"{config.keys_file} holds keys that cannot be used") from error
    await _serve(config, files, gateway, registry)


async def _serve(
    config: EventGatewayConfig, files: GatewayFiles, gateway: Gateway, registry: CollectorRegistry
) -> None:
    life = Lifetime()
    ProcessCollector(registry=registry)
    CertificateExpiry(config, registry, {"tls-cert-file": Path(config.directory) / f"{SERVING}.crt"})
    life.stop_on_signals()
    checks = {"nats-connection": gateway.check_connection, "tenants-account": gateway.check_account}
    server = Server(HealthServer(registry, checks), Limits(), server_context(files.serving, files.clients))
    listen = functools.partial(server.start, config.bind_address)
    port = await take_port(listen, config.bind_address, config.secure_port, Path(config.directory))
    life.run_in_background(
        gateway.run(),
        renew_server(config.tls_cert_file, config.tls_private_key_file, config.client_ca_file, server.use),
        reload_public_keys(config.service_account_key_file, files.public_keys),
        return_freed_memory(),
    )
    sys.stdout.write(f"atoll event-gateway serves https://{config.host}:{port}\n")
    sys.stdout.flush()
    await life.stopped()
    log.info("draining")
    await life.close()
    await server.drain(DRAIN_S)
    life.check()


def _read(config: EventGatewayConfig) -> GatewayFiles:
    access = read_access(config.nats_url, config.nats_credentials_file)
    issuers = config.service_account_issuer or ServiceAccountIssuers().names
    keys = read_public_keys(config.service_account_key_file)
    serving = serving_pair(config, Path(config.directory), SERVING)
    clients = Path(config.client_ca_file).read_bytes() if config.client_ca_file else b""
    shared = read_gateway_keys(Path(config.keys_file))
    return GatewayFiles(access, shared, keys, EventTokens(keys, issuers), serving, clients)
