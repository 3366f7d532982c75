"""Reload of the files by which a shard verifies its clients: CAs of client certificates and of proxies, revocation
lists and static tokens; and of the serving certificate.

`standalone.listener` and `worker` run `reload_credentials` beside their server.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from atoll.machinery.apiserver.authentication import dynamic_client_ca
from atoll.machinery.apiserver.authentication.dynamic_client_ca import ClientCAs, Listening, ReloadTarget
from atoll.machinery.apiserver.authentication.token_reload import reload_admin_tokens, reload_token_file
from atoll.shard.authentication import Credentials, ShardAuthentication, client_ca_files
from atoll.shard.config import ShardConfig


async def reload_credentials(
    config: ShardConfig, credentials: Credentials, identity: ShardAuthentication, server: Listening
) -> None:
    """Poll the files until cancelled; `server` uses what changed for new connections."""
    before = ClientCAs(credentials.client_ca_pem, credentials.proxy_ca_pem, credentials.revoked)
    target = ReloadTarget(credentials.serving, identity.certificates, server)
    await asyncio.gather(
        dynamic_client_ca.reload_on_change(client_ca_files(config), before, target),
        reload_token_file(config.token_auth_file, identity.listed, server.cut_requests),
        reload_admin_tokens(Path(config.root_directory), identity.admins, server.cut_requests),
    )
