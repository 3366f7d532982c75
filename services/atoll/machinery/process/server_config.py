"""Settings of all listening processes: shards, front proxies, cache servers, virtual workspaces of third parties.

Each declares a `ServerConfig` with its further settings. Invariant: a process starts with an address and a port that
exist.
"""

from __future__ import annotations

from collections.abc import Mapping

from atoll.machinery.process.config import ProcessConfig
from atoll.machinery.process.listen_address import check_listen_address, url_host

#: Descriptions of the settings that mean the same in every process.
LISTEN_SETTINGS: Mapping[str, str] = {
    "bind_address": "address to listen on",
    "secure_port": "HTTPS port; 0 picks a free one",
}
#: Descriptions of the settings of a process that serves its health and metrics alone.
HEALTH_SETTINGS: Mapping[str, str] = {
    **LISTEN_SETTINGS,
    "tls_cert_file": "PEM file with the serving certificate; empty: one is made",
    "tls_private_key_file": "PEM file with its key",
    "client_ca_file": "PEM file with the CAs of clients, whose certificates of the organization system:masters"
    " may read /metrics; empty: nobody may",
    "allow_any_filesystem": "accept network and temporary file systems",
}


class ServerConfig(ProcessConfig, frozen=True, kw_only=True):
    """The settings of a listening process. Paths are used unchanged; empty means off."""

    bind_address: str = "127.0.0.1"
    secure_port: int = 6443
    tls_cert_file: str = ""
    tls_private_key_file: str = ""
    allow_any_filesystem: bool = False

    def __post_init__(self) -> None:
        """Reject an invalid address or port. Raises ValueError."""
        super().__post_init__()
        check_listen_address(self.bind_address, self.secure_port)

    @property
    def host(self) -> str:
        """Its address for clients on this machine, as in a URL."""
        return url_host(self.bind_address)

    def require(self, *names: str, where: str = "") -> None:
        """Check that settings are not empty; `where` ends the error's text. Raises ValueError."""
        for name in names:
            if not getattr(self, name):
                raise ValueError(f"{_flag(name)} must not be empty{where}")

    def require_both_or_none(self, one: str, other: str) -> None:
        """Check that two settings are both set or both empty. Raises ValueError."""
        if bool(getattr(self, one)) != bool(getattr(self, other)):
            raise ValueError(f"{_flag(one)} and {_flag(other)} go together")


def _flag(name: str) -> str:
    return name.replace("_", "-")
