"""Settings of a shard process. The names are kcp's where kcp has the setting."""

from __future__ import annotations

import ipaddress
import re
from typing import ClassVar

import msgspec

#: kcp's feature gates and the Kubernetes ones it documents; anything else is refused.
FEATURE_GATES = (
    "WorkspaceMounts", "CacheAPIs", "EnableDeprecatedAPIExportVirtualWorkspacesUrls", "WorkspaceAuthentication",
    "LogicalClusterMigration", "StorageVersionAPI", "GlobalServiceAccount", "WatchList", "ListFromCacheSnapshot",
)  # fmt: skip


LOG_LEVELS = ("debug", "info", "warning", "error")
MAX_WORKERS = 64
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class ShardConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What `atoll start` can be told. Paths are taken as given; empty means off."""

    root_directory: str = ".atoll"
    bind_address: str = "127.0.0.1"
    secure_port: int = 6443
    shard_name: str = "root"
    token_auth_file: str = ""
    client_ca_file: str = ""
    audit_log_path: str = ""
    feature_gates: str = ""
    skip_admin_user: bool = False
    nats_url: str = ""
    workers: int = 0
    log_level: str = "info"
    allow_any_filesystem: bool = False

    __descriptions__: ClassVar[dict[str, str]] = {
        "root_directory": "where keys, store and kubeconfig are kept",
        "bind_address": "address to listen on",
        "secure_port": "HTTPS port; 0 picks a free one",
        "shard_name": "name of this shard, one DNS label",
        "token_auth_file": "CSV file with token,user,uid,groups",
        "client_ca_file": "PEM file with authorities of client certificates",
        "audit_log_path": "file for audit events; - is standard output",
        "feature_gates": "comma separated Gate=true|false",
        "skip_admin_user": "create no kcp-admin and shard-admin users",
        "nats_url": "a NATS server to publish to, instead of the embedded one",
        "workers": "API worker processes beside the writer; 0: everything in one process",
        "log_level": "debug, info, warning or error",
        "allow_any_filesystem": "accept network and temporary file systems",
    }

    def __post_init__(self) -> None:
        """Refuse what could only fail later. Raises ValueError with what is wrong."""
        if not self.root_directory:
            raise ValueError("root-directory must not be empty")
        if not 0 <= self.secure_port <= 65535:
            raise ValueError(f"secure-port {self.secure_port} is not between 0 and 65535")
        if not 0 <= self.workers <= MAX_WORKERS:
            raise ValueError(f"workers {self.workers} is not between 0 and {MAX_WORKERS}")
        if not _LABEL.fullmatch(self.shard_name):
            raise ValueError(f"shard-name {self.shard_name!r} is not a DNS label")
        if self.log_level not in LOG_LEVELS:
            raise ValueError(f"log-level {self.log_level!r} is none of {', '.join(LOG_LEVELS)}")
        try:
            ipaddress.ip_address(self.bind_address)
        except ValueError as error:
            raise ValueError(f"bind-address {self.bind_address!r} is not an IP address") from error

    @property
    def host(self) -> str:
        """Where clients on this machine find the shard, as it stands in a URL."""
        address = ipaddress.ip_address(self.bind_address)
        if address.is_unspecified:
            return "127.0.0.1" if address.version == 4 else "[::1]"
        return str(address) if address.version == 4 else f"[{address}]"


class UnknownGate(Exception):
    """A feature gate that does not exist, or a value that is neither true nor false."""


def feature_gates(text: str) -> dict[str, bool]:
    """The gates of `--feature-gates`. Raises UnknownGate."""
    gates: dict[str, bool] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, value = part.partition("=")
        if name not in FEATURE_GATES:
            raise UnknownGate(f"unrecognized feature gate: {name}")
        if value not in {"true", "false"}:
            raise UnknownGate(f"invalid value of {name}={value}, err: it must be true or false")
        gates[name] = value == "true"
    return gates
