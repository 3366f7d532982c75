"""Where the NATS server of `atoll start` listens, and by which URL it is reached.

A single shard and a site ask it. Invariant: outside of loopback the server speaks TLS alone, so no password and no
token of a subscriber crosses a network in the clear.
"""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path
from urllib.parse import urlsplit

from atoll.machinery.process import pki
from atoll.machinery.process.listen_address import serving_names, url_host
from atoll.machinery.stream.server.config import TlsFiles
from atoll.shard.authentication import SERVING_CA
from atoll.shard.config import ShardConfig

SERVING = "serving-nats"


def nats_url(config: ShardConfig, port: int) -> str:
    """The URL for processes of this machine."""
    return _url(config, url_host(config.events_bind_address), port)


def subscribers_url(config: ShardConfig, port: int) -> str:
    """The URL for subscribers: by the host of the shard's external URL, else by the address or the machine's name."""
    address = ipaddress.ip_address(config.events_bind_address)
    if address.is_loopback:
        return nats_url(config, port)
    if host := urlsplit(config.shard_external_url).hostname:
        return _url(config, f"[{host}]" if ":" in host else host, port)
    return _url(config, socket.gethostname() if address.is_unspecified else url_host(config.events_bind_address), port)


def tls_files(config: ShardConfig, directory: Path) -> TlsFiles | None:
    """The certificate of the server, made on first use by the serving CA of the directory; None on loopback.

    Raises PkiError, OSError.
    """
    if _on_loopback(config):
        return None
    authority = pki.load_or_make_ca(directory, SERVING_CA, "atoll serving CA")
    outside = urlsplit(config.shard_external_url).hostname
    names = serving_names(config.events_bind_address, [outside] if outside else [])
    pki.load_or_make_serving(directory, SERVING, authority, names)
    certificate, key, ca = (
        directory.absolute() / name for name in (f"{SERVING}.crt", f"{SERVING}.key", f"{SERVING_CA}.crt")
    )
    return TlsFiles(certificate, key, ca)


def _url(config: ShardConfig, host: str, port: int) -> str:
    return f"{'nats' if _on_loopback(config) else 'tls'}://{host}:{port}"


def _on_loopback(config: ShardConfig) -> bool:
    return ipaddress.ip_address(config.events_bind_address).is_loopback
