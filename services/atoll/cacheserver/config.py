"""Settings of a cache server: flags, environment (ATOLL_...) and file, as for every process of Atoll."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from atoll.machinery.process.config import LOG_SETTINGS, Subjects
from atoll.machinery.process.server_config import LISTEN_SETTINGS, ServerConfig


class CacheServerConfig(ServerConfig, frozen=True, kw_only=True):
    """Settings of `atoll cache-server`. Paths are used unchanged; empty means off."""

    root_directory: str = ".atoll-cache"
    secure_port: int = 6445
    client_ca_file: str = ""
    client_crl_file: str = ""
    nats_url: str = ""
    nats_credentials_file: str = ""
    region: str = ""
    shard_client_cert_file: str = ""
    shard_client_key_file: str = ""
    shard_virtual_workspace_ca_file: str = ""
    list_window: int = 300
    log_retention: int = 24 * 3600

    SUMMARY: ClassVar[str] = "Serve the objects that all shards replicate, over HTTP."
    SUBJECTS: ClassVar[Subjects] = {
        "Server": {
            "root_directory": "directory of the stored copies; they are served from there after a restart",
            **LISTEN_SETTINGS,
            "tls_cert_file": "PEM file with the serving certificate",
            "tls_private_key_file": "PEM file with its key",
            "client_ca_file": "PEM file with the CAs of client certificates; reread when it changes. Certificates with"
            " the organization system:masters may read, all others are refused",
            "client_crl_file": "PEM file with revocation lists (CRLs) of client certificates; reread when it changes",
        },
        "Streams": {
            "nats_url": "NATS server with the streams of the shards, or with those of a region that source them",
            "nats_credentials_file": "JSON file with user, password, inbox_prefix and ca_file for the NATS server",
            "region": "region of this server; objects that do not leave another region are not served",
        },
        "Shards": {
            "shard_client_cert_file": "PEM file with a client certificate of system:masters for shards; without it the"
            " objects of ClusterCachedResources are unavailable",
            "shard_client_key_file": "PEM file with its key",
            "shard_virtual_workspace_ca_file": "PEM file with the CAs of shards; empty: the system's",
        },
        "Store": {
            "list_window": "seconds that a list can be continued and an earlier state can be listed",
            "log_retention": "seconds that changes are kept for watches; at least list-window",
            "allow_any_filesystem": "accept network and temporary file systems",
        },
        "Logs": LOG_SETTINGS,
    }
    COMMON: ClassVar[Collection[str]] = (*SUBJECTS["Server"], *SUBJECTS["Streams"], "log_level")

    def __post_init__(self) -> None:
        """Reject invalid values at start. Raises ValueError."""
        super().__post_init__()
        self.require_both_or_none("shard_client_cert_file", "shard_client_key_file")
        if not 1 <= self.list_window <= self.log_retention:
            raise ValueError(f"list-window {self.list_window} is not between 1 and log-retention {self.log_retention}")

    def check_complete(self) -> None:
        """Check that the settings without a default are set. Raises ValueError."""
        self.require("root_directory", "tls_cert_file", "tls_private_key_file", "client_ca_file", "nats_url")
