"""Settings of `atoll edge-controllers`: flags, environment (ATOLL_...) and file, as for every process of Atoll."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from atoll.machinery.edge.categories import BuiltIns
from atoll.machinery.process.config import LOG_SETTINGS, Subjects
from atoll.machinery.process.server_config import LISTEN_SETTINGS, ServerConfig


class EdgeControllersConfig(ServerConfig, frozen=True, kw_only=True):
    """Settings of one process. Paths are used unchanged; empty means off."""

    kubeconfig: str = ""
    mailbox_parent: str = ""
    nats_url: str = ""
    nats_credentials_file: str = ""
    edge_resources: tuple[str, ...] = ()
    edge_namespaces: tuple[str, ...] = ("default",)
    mailbox_resources: tuple[str, ...] = ()
    directory: str = ".atoll-edge"
    secure_port: int = 0
    client_ca_file: str = ""

    SUMMARY: ClassVar[str] = "Run the controllers of edge clusters."
    SUBJECTS: ClassVar[Subjects] = {
        "Edge service": {
            "kubeconfig": "kubeconfig that atoll edge-init wrote",
            "mailbox_parent": "workspace below which mailboxes are made, where the controller's account needs rights;"
            " empty: that of the service",
        },
        "Built in": {
            "edge_resources": "resources (plural.group) that every edge cluster has: their definitions are not copied",
            "edge_namespaces": "namespaces that every edge cluster has: what they say of themselves is not copied",
            "mailbox_resources": "resources (plural.group) that every mailbox has: their definitions are not copied",
        },
        "Change streams": {
            "nats_url": "NATS server with the changes of all shards; empty: changes of workloads are not seen",
            "nats_credentials_file": "JSON file with user, password, inbox_prefix and ca_file for the NATS server",
        },
        "Server": {
            "directory": "directory of the positions, of what was applied, and of files made for the listener",
            **LISTEN_SETTINGS,
            "tls_cert_file": "PEM file with the serving certificate; empty: one is made",
            "tls_private_key_file": "PEM file with its key",
            "client_ca_file": "PEM file with the CAs of clients, whose certificates of the organization system:masters"
            " may read /metrics; empty: nobody may",
            "allow_any_filesystem": "accept network and temporary file systems",
        },
        "Logs": LOG_SETTINGS,
    }
    COMMON: ClassVar[Collection[str]] = (
        *SUBJECTS["Edge service"],
        *SUBJECTS["Change streams"],
        *SUBJECTS["Server"],
        "log_level",
    )

    @property
    def built_ins(self) -> BuiltIns:
        """What every edge cluster and every mailbox has anyway."""
        return BuiltIns(*map(frozenset, (self.edge_resources, self.edge_namespaces, self.mailbox_resources)))

    def __post_init__(self) -> None:
        """Reject invalid values at start. Raises ValueError."""
        super().__post_init__()
        if self.nats_credentials_file and not self.nats_url:
            raise ValueError("nats_credentials_file requires nats_url")
        self.require_both_or_none("tls_cert_file", "tls_private_key_file")
