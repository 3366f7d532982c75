"""A shard's authorities of client certificates and of proxies, as its flags name them.

Whoever listens (`standalone.listener`, a `worker`) runs `renew` beside its server.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable

from atoll.machinery.apiserver.authentication import dynamic_client_ca
from atoll.machinery.apiserver.authentication.certificates import Certificates
from atoll.machinery.apiserver.authentication.dynamic_client_ca import ClientCAFiles, ClientCAs, ReloadTarget
from atoll.shard.authentication import Credentials
from atoll.shard.config import ShardConfig


async def renew(
    config: ShardConfig, credentials: Credentials, certificates: Certificates, use: Callable[[ssl.SSLContext], None]
) -> None:
    """Look at the files until cancelled; `use` is given the context of new connections."""
    files = ClientCAFiles(config.client_ca_file, config.requestheader_client_ca_file)
    before = ClientCAs(credentials.client_ca_pem, credentials.proxy_ca_pem)
    await dynamic_client_ca.reload_on_change(files, before, ReloadTarget(credentials.serving, certificates, use))
