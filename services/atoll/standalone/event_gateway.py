"""The event gateway of a single shard: it runs in the shard's process, at the embedded NATS server.

`change_stream` starts it once that server runs. Beside its user and keys it writes the file by which the shard makes
subscriptions. Invariant: shards are told the address that subscribers reach, with the authority that proves it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import structlog
from prometheus_client import CollectorRegistry

from atoll.eventgateway.gateway import build_gateway
from atoll.machinery.apiserver.authentication.event_tokens import EventTokens
from atoll.machinery.stream.server.config import NatsUser, TenantOptions, TlsFiles
from atoll.shard.config import ShardConfig
from atoll.standalone import nats_listener
from atoll.standalone.site.gateways import gateway_users, tenant_options, write_for_shards
from atoll.standalone.site.layout import GATEWAY

log = structlog.get_logger()


class EmbeddedGateway:
    """`user` and `tenants` go into the server's configuration; `run` when it is up."""

    def __init__(
        self, config: ShardConfig, tls: TlsFiles | None, tokens: EventTokens, registry: CollectorRegistry
    ) -> None:
        """Raises InvalidCredentialFile, OSError."""
        self._config, self._tls, self._tokens, self._registry = config, tls, tokens, registry
        self._root = Path(config.root_directory)
        self.user: NatsUser = gateway_users(self._root, [GATEWAY])[0]
        self.tenants: TenantOptions = tenant_options(self._root, [config.shard_name])

    async def run(self, address: str) -> None:
        """Serve subscribers at the server with this address, until cancelled."""
        url = nats_listener.subscribers_url(self._config, urlsplit(address).port or 0)
        try:
            await asyncio.to_thread(write_for_shards, self._root, self.tenants, [url], self._tls)
        except OSError as error:
            # On a full disk the file of an earlier start stays.
            log.error("address for subscribers not written", error=str(error))
        access, most = self.user.access(address, self._tls), self._config.event_connections_per_identity
        await build_gateway(access, self.tenants.keys, self._tokens, self._registry, most).run()
