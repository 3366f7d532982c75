"""Settings of a view's process: flags, environment (ATOLL_...) and file, as for every process of Atoll."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from atoll.machinery.process.config import LOG_SETTINGS, Subjects
from atoll.machinery.process.server_config import LISTEN_SETTINGS, ServerConfig


class ViewConfig(ServerConfig, frozen=True, kw_only=True):
    """Settings of one process.

    A client with a certificate of `requestheader_client_ca_file` may name users in X-Remote headers.
    """

    export: str = ""
    kubeconfig: str = ""
    context: str = ""
    directory: str = ""
    secure_port: int = 0
    requestheader_client_ca_file: str = ""
    requestheader_allowed_names: str = ""
    client_ca_file: str = ""
    client_crl_file: str = ""

    SUMMARY: ClassVar[str] = "Serve a virtual workspace of an APIExport."
    SUBJECTS: ClassVar[Subjects] = {
        "Export": {
            "export": "name of the APIExport, in the workspace of the kubeconfig's context",
            "kubeconfig": "kubeconfig whose credentials read the export's virtual workspace and create access reviews",
            "context": "context of the kubeconfig; empty: the current one",
        },
        "Server": {
            "directory": "directory of the stored copies; they are served from there after a restart",
            **LISTEN_SETTINGS,
            "tls_cert_file": "PEM file with the serving certificate",
            "tls_private_key_file": "PEM file with its key",
            "requestheader_client_ca_file": "PEM file with the CAs of shards and front proxies, which name users in"
            " headers",
            "requestheader_allowed_names": "comma separated common names of these; empty: any certificate of the CAs",
            "client_ca_file": "PEM file with the CAs of other clients, whose certificates name them; those of the"
            " organization system:masters may read /metrics",
            "client_crl_file": "PEM file with revocation lists (CRLs) of client certificates; reread when it changes",
            "allow_any_filesystem": "accept network and temporary file systems",
        },
        "Logs": LOG_SETTINGS,
    }
    COMMON: ClassVar[Collection[str]] = (*SUBJECTS["Export"], *SUBJECTS["Server"], "log_level")

    def __post_init__(self) -> None:
        """Reject invalid values at start. Raises ValueError."""
        super().__post_init__()
        self.require("export", "directory", "tls_cert_file", "tls_private_key_file", "requestheader_client_ca_file")
