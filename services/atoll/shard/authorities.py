"""Authorities of client certificates and of proxies, taken over anew when their files change.

Whoever listens (`standalone.front`, a `worker`) runs `renew` beside its server: new connections go by the new
authorities, and a certificate of one that was taken out makes nobody any more, on connections that are open too.
Invariant: a file that is absent or holds no certificates leaves what was in force, and is told of once.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog

from atoll.machinery.apiserver.authentication.certificates import Certificates
from atoll.shard.config import ShardConfig
from atoll.shard.identity import Credentials, CredentialsRefused, authorities

log = structlog.get_logger()

#: How often the files are looked at.
LOOK_EVERY_S = 1.0

Stamp = tuple[int, int, int]


async def renew(
    config: ShardConfig, credentials: Credentials, certificates: Certificates, use: Callable[[ssl.SSLContext], None]
) -> None:
    """Look at the files until cancelled; `use` is given the context of new connections."""
    files = config.client_ca_file, config.requestheader_client_ca_file
    seen: tuple[Stamp | None, ...] = ()
    if not any(files):
        await asyncio.Event().wait()
    while True:
        # What was written between the first reading and the first look is found as well: nothing is seen yet.
        stamps = tuple(_stamp(file) for file in files)
        if stamps != seen:
            seen = stamps
            credentials = _taken_over(files, credentials, certificates, use)
        await asyncio.sleep(LOOK_EVERY_S)


def _stamp(file: str) -> Stamp | None:
    try:
        found = Path(file).stat() if file else None
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino) if found is not None else None


def _taken_over(
    files: tuple[str, str], before: Credentials, certificates: Certificates, use: Callable[[ssl.SSLContext], None]
) -> Credentials:
    try:
        clients, proxies = (authorities(file) for file in files)
        if (clients, proxies) == (before.client_ca_pem, before.proxy_ca_pem):
            return before
        found = msgspec.structs.replace(before, client_ca_pem=clients, proxy_ca_pem=proxies)
        context = found.context
    except (CredentialsRefused, OSError) as error:
        log.error("authorities not taken over", reason=str(error))
        return before
    # Certificates first: whoever is let in by the new context is judged by the same authorities.
    certificates.trust(clients, proxies)
    use(context)
    log.info("authorities read")
    return found
