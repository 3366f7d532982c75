"""Reload of the files of a shard's listener: CAs of client certificates and of proxies, and the serving certificate.

`standalone.listener` and `worker` run `reload_client_cas` beside their server.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable

from atoll.machinery.apiserver.authentication import dynamic_client_ca
from atoll.machinery.apiserver.authentication.certificates import Certificates
from atoll.machinery.apiserver.authentication.dynamic_client_ca import ClientCAFiles, ClientCAs, ReloadTarget
from atoll.shard.authentication import Credentials
from atoll.shard.config import ShardConfig


async def reload_client_cas(
    config: ShardConfig, credentials: Credentials, certificates: Certificates, use: Callable[[ssl.SSLContext], None]
) -> None:
    """Poll the files until cancelled; call `use` with the TLS context of new connections after a change."""
    serving = config.tls_cert_file, config.tls_private_key_file
    files = ClientCAFiles(config.client_ca_file, config.requestheader_client_ca_file, serving)
    before = ClientCAs(credentials.client_ca_pem, credentials.proxy_ca_pem)
    await dynamic_client_ca.reload_on_change(files, before, ReloadTarget(credentials.serving, certificates, use))
