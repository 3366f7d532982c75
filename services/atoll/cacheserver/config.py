"""Settings of a cache server: flags, environment (ATOLL_...) and file, as for every process of Atoll."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from atoll.machinery.process.listening import check_place, url_host
from atoll.machinery.process.logging import check_level


class CacheServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What `atoll cache-server` can be told. Paths are taken as given; empty means off."""

    root_directory: str = ".atoll-cache"
    bind_address: str = "127.0.0.1"
    secure_port: int = 6445
    tls_cert_file: str = ""
    tls_private_key_file: str = ""
    client_ca_file: str = ""
    nats_url: str = ""
    nats_credentials_file: str = ""
    region: str = ""
    list_window: int = 300
    log_retention: int = 24 * 3600
    allow_any_filesystem: bool = False
    log_level: str = "info"

    __descriptions__: ClassVar[dict[str, str]] = {
        "root_directory": "where the rows are kept; they are served from there after a restart",
        "bind_address": "address to listen on",
        "secure_port": "HTTPS port; 0 picks a free one",
        "tls_cert_file": "PEM file with the serving certificate",
        "tls_private_key_file": "PEM file with its key",
        "client_ca_file": "PEM file with authorities of client certificates, read anew on change; certificates with the"
        " organization system:masters read, all others are refused",
        "nats_url": "the NATS server with the shards' streams, or with those of a region that source them",
        "nats_credentials_file": "JSON file with user, password, inbox_prefix and ca_file for it",
        "region": "where this server is: what does not leave another region is not shown",
        "list_window": "seconds that a list can be paged through and an earlier state be listed",
        "log_retention": "seconds that changes are kept for watches; not below list-window",
        "allow_any_filesystem": "accept network and temporary file systems",
        "log_level": "debug, info, warning or error",
    }

    def __post_init__(self) -> None:
        """Refuse what could only fail later. Raises ValueError with what is wrong."""
        check_level(self.log_level)
        check_place(self.bind_address, self.secure_port)
        if not 1 <= self.list_window <= self.log_retention:
            raise ValueError(f"list-window {self.list_window} is not between 1 and log-retention {self.log_retention}")

    def check_complete(self) -> None:
        """What has no default must have been told. Raises ValueError."""
        names = "root_directory", "tls_cert_file", "tls_private_key_file", "client_ca_file", "nats_url"
        for name in names:
            if not getattr(self, name):
                raise ValueError(f"{name.replace('_', '-')} must not be empty")

    @property
    def host(self) -> str:
        """Where clients on this machine find it, as it stands in a URL."""
        return url_host(self.bind_address)
