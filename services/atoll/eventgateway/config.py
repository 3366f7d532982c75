"""Settings of `atoll event-gateway`: flags, environment (ATOLL_...) and file, as for every process of Atoll."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from atoll.machinery.process.config import LOG_SETTINGS, Subjects
from atoll.machinery.process.server_config import HEALTH_SETTINGS, ServerConfig
from atoll.machinery.stream.tenants.subscriber_permissions import MOST_CONNECTIONS


class EventGatewayConfig(ServerConfig, frozen=True, kw_only=True):
    """Settings of one gateway. Paths are used unchanged; empty means off."""

    directory: str = ".atoll-event-gateway"
    secure_port: int = 0
    client_ca_file: str = ""
    nats_url: str = ""
    nats_credentials_file: str = ""
    keys_file: str = ""
    service_account_key_file: tuple[str, ...] = ()
    service_account_issuer: tuple[str, ...] = ()
    connections_per_identity: int = MOST_CONNECTIONS

    SUMMARY: ClassVar[str] = "Let subscribers of events in at a NATS server, by their tokens."
    SUBJECTS: ClassVar[Subjects] = {
        "NATS server": {
            "nats_url": "NATS server whose clients are let in",
            "nats_credentials_file": "JSON file with user, password, inbox_prefix and ca_file of this gateway",
            "keys_file": "JSON file with the keys that all gateways of the server share; who has it may do everything"
            " on the server",
        },
        "Limits": {"connections_per_identity": "connections of one user, or service account, at a server at a time"},
        "Tokens": {
            "service_account_key_file": "PEM file with public keys that sign service account tokens and event tokens",
            "service_account_issuer": "issuer of service account tokens; every one is accepted",
        },
        "Server": {"directory": "directory of files made for the listener", **HEALTH_SETTINGS},
        "Logs": LOG_SETTINGS,
    }
    COMMON: ClassVar[Collection[str]] = (
        *SUBJECTS["NATS server"],
        *SUBJECTS["Limits"],
        *SUBJECTS["Tokens"],
        *SUBJECTS["Server"],
        "log_level",
    )

    def __post_init__(self) -> None:
        """Reject invalid values at start. Raises ValueError."""
        super().__post_init__()
        self.require_both_or_none("tls_cert_file", "tls_private_key_file")
        if self.connections_per_identity < 1:
            raise ValueError("connections-per-identity must be at least 1")

    def check_complete(self) -> None:
        """Check that the settings without a default are set. Raises ValueError."""
        self.require("directory", "nats_url", "nats_credentials_file", "keys_file", "service_account_key_file")
