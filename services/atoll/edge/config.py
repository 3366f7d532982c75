"""Settings of `atoll edge-controllers`: flags, environment (ATOLL_...) and file, as for every process of Atoll."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from atoll.machinery.edge.categories import NAMESPACES_OF_ALL, BuiltIns, ExportName
from atoll.machinery.meta.names import ROOT
from atoll.machinery.process.config import LOG_SETTINGS, Subjects
from atoll.machinery.process.server_config import HEALTH_SETTINGS, ServerConfig


class EdgeControllersConfig(ServerConfig, frozen=True, kw_only=True):
    """Settings of one process. Paths are used unchanged; empty means off."""

    kubeconfig: str = ""
    mailbox_parent: str = ""
    shared: bool = False
    nats_url: str = ""
    nats_credentials_file: str = ""
    edge_resources: tuple[str, ...] = ()
    edge_namespaces: tuple[str, ...] = NAMESPACES_OF_ALL
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
            "shared": "share the work with other processes that have this setting; without it one works, others wait",
        },
        "Built in": {
            "edge_resources": "resources (plural.group) that every edge cluster has: their definitions are not copied",
            "edge_namespaces": "namespaces that every edge cluster has: what they say of themselves is not copied",
            "mailbox_resources": "resources that every mailbox has, by a binding to the export kubernetes of root"
            " (plural.group) or to another one (plural.group@workspace:export): their definitions are not copied",
        },
        "Change streams": {
            "nats_url": "NATS server with the changes of all shards; empty: changes of workloads are not seen",
            "nats_credentials_file": "JSON file with user, password, inbox_prefix and ca_file for the NATS server",
        },
        "Server": {
            "directory": "directory of the positions, of what was applied, and of files made for the listener",
            **HEALTH_SETTINGS,
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
        rows = [_offered(each) for each in self.mailbox_resources]
        edge = frozenset(self.edge_resources), frozenset(self.edge_namespaces)
        return BuiltIns(*edge, frozenset(name for name, _ in rows), frozenset(export for _, export in rows))

    def __post_init__(self) -> None:
        """Reject invalid values at start. Raises ValueError."""
        super().__post_init__()
        if self.nats_credentials_file and not self.nats_url:
            raise ValueError("nats_credentials_file requires nats_url")
        self.require_both_or_none("tls_cert_file", "tls_private_key_file")
        for each in self.mailbox_resources:
            if "" in (found := _offered(each))[1] or not found[0]:
                raise ValueError(f"mailbox_resources: {each!r} is not of the form plural.group@workspace:export")


def _offered(text: str) -> tuple[str, ExportName]:
    """Return a resource, and the export that offers it."""
    resource, has_export, export = text.partition("@")
    path, _, name = export.rpartition(":")
    return resource, (path, name) if has_export else (ROOT, "kubernetes")
