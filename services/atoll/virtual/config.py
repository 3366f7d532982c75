"""Settings of a view's process: flags, environment (ATOLL_...) and file, as for every process of Atoll."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from atoll.machinery.process.listening import check_place
from atoll.machinery.process.logging import check_level


class ViewConfig(msgspec.Struct, frozen=True):
    """One process. Whoever holds a certificate of `requestheader_client_ca_file` names users in X-Remote headers."""

    export: str = ""
    kubeconfig: str = ""
    context: str = ""
    directory: str = ""
    bind_address: str = "127.0.0.1"
    secure_port: int = 0
    tls_cert_file: str = ""
    tls_private_key_file: str = ""
    requestheader_client_ca_file: str = ""
    requestheader_allowed_names: str = ""
    allow_any_filesystem: bool = False
    log_level: str = "info"

    __descriptions__: ClassVar[dict[str, str]] = {
        "export": "name of the APIExport, in the workspace of the kubeconfig's context",
        "kubeconfig": "file with the credentials that read the export's view and ask for access reviews",
        "context": "context of the kubeconfig; empty: the current one",
        "directory": "where the rows are kept; they are served from there after a restart",
        "bind_address": "address to listen on",
        "secure_port": "HTTPS port; 0 picks a free one",
        "tls_cert_file": "PEM file with the serving certificate",
        "tls_private_key_file": "PEM file with its key",
        "requestheader_client_ca_file": "PEM file with the authorities of shards that name users in headers",
        "requestheader_allowed_names": "comma separated common names of such shards; empty: any that is signed",
        "allow_any_filesystem": "accept network and temporary file systems",
        "log_level": "debug, info, warning or error",
    }

    def __post_init__(self) -> None:
        """Refuse what could only fail later. Raises ValueError with what is wrong."""
        for name in ("export", "directory", "tls_cert_file", "tls_private_key_file", "requestheader_client_ca_file"):
            if not getattr(self, name):
                raise ValueError(f"{name.replace('_', '-')} must not be empty")
        check_level(self.log_level)
        check_place(self.bind_address, self.secure_port)
