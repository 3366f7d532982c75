"""Settings of a front proxy. The names are kcp's where kcp has the setting, and the shard's where both have it."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from atoll.machinery.apiserver.authentication.request_header_config import REQUEST_HEADER_SETTINGS, RequestHeaderConfig
from atoll.machinery.egress.addresses import policy
from atoll.machinery.process import feature_gates as gates
from atoll.machinery.process.config import LOG_SETTINGS, Subjects
from atoll.machinery.process.server_config import LISTEN_SETTINGS

#: The feature gate that has an effect in a front proxy.
WORKSPACE_AUTHENTICATION = "WorkspaceAuthentication"
GATES = (WORKSPACE_AUTHENTICATION,)

#: Groups with rights on a whole shard, which no caller may bring along; kcp's default.
DROP_GROUPS = (
    "system:masters",
    "system:kcp:logical-cluster-admin",
    "system:kcp:initializer:*",
    "system:kcp:terminator:*",
)


class FrontProxyConfig(RequestHeaderConfig, frozen=True, kw_only=True):
    """Settings of `atoll front-proxy`. Paths are used unchanged; empty means off."""

    root_directory: str = ".atoll-front-proxy"
    mapping_file: str = ""
    root_ca_file: str = ""
    proxy_client_cert_file: str = ""
    proxy_client_key_file: str = ""
    client_ca_file: tuple[str, ...] = ()
    client_crl_file: str = ""
    token_auth_file: str = ""
    authentication_config: str = ""
    authentication_drop_groups: tuple[str, ...] = DROP_GROUPS
    authentication_pass_on_groups: tuple[str, ...] = ()
    service_account_key_file: tuple[str, ...] = ()
    service_account_issuer: tuple[str, ...] = ()
    api_audiences: tuple[str, ...] = ()
    nats_url: str = ""
    nats_credentials_file: str = ""
    feature_gates: str = ""
    egress_allow_cidr: str = ""
    mount_proxy_ca_file: str = ""
    cluster_map_file: str = ""
    region: str = ""

    SUMMARY: ClassVar[str] = "Run a front proxy: one address for the workspaces of all shards."
    COMMON: ClassVar[Collection[str]] = (
        "root_directory",
        "bind_address",
        "secure_port",
        "mapping_file",
        "root_ca_file",
        "proxy_client_cert_file",
        "proxy_client_key_file",
        "client_ca_file",
        "nats_url",
        "feature_gates",
        "log_level",
    )
    SUBJECTS: ClassVar[Subjects] = {
        "Server": {
            "root_directory": "directory of the routes and of files made for the listener",
            **LISTEN_SETTINGS,
            "tls_cert_file": "PEM file with the serving certificate; empty: one is made",
            "tls_private_key_file": "PEM file with its key",
            "allow_any_filesystem": "accept network and temporary file systems",
            "feature_gates": gates.description(GATES),
        },
        "Shards": {
            "mapping_file": "YAML file that maps paths to backends; empty: /clusters/ to the shards, all else to root",
            "root_ca_file": "PEM file with the CAs of shards",
            "proxy_client_cert_file": "PEM file with the client certificate that shards accept from front proxies",
            "proxy_client_key_file": "PEM file with its key",
            "nats_url": "NATS server of the sharded deployment",
            "nats_credentials_file": "JSON file with user, password, inbox_prefix and ca_file for the NATS server",
            "cluster_map_file": "file that maps logical clusters to shards for a load balancer; empty: none is written",
            "region": "region whose shards get the homes of users who first come in here; empty: any shard",
        },
        "Users": {
            "authentication_config": "AuthenticationConfiguration file (OpenID Connect); reread when it changes",
            "client_ca_file": "PEM files with the CAs of client certificates; reread when they change",
            "client_crl_file": "PEM file with revocation lists (CRLs) of client certificates; reread when it changes",
            "token_auth_file": "CSV file with token,user,uid,groups; reread when it changes",
            "authentication_drop_groups": "groups removed from every caller; a * at the end matches any text",
            "authentication_pass_on_groups": "the only groups kept of callers; empty: all except the dropped ones",
            "service_account_key_file": "PEM file with keys that sign service account tokens",
            "service_account_issuer": "issuer of service account tokens; issuers after the first are accepted too",
            "api_audiences": "audiences of tokens; empty: the issuers",
        },
        "Requests forwarded by other proxies": REQUEST_HEADER_SETTINGS,
        "Requests to mounts": {
            "egress_allow_cidr": "comma separated networks that mounts may be in although they are loopback or this"
            " machine's own",
            "mount_proxy_ca_file": "PEM file with the CAs of mounts; empty: the system's",
        },
        "Logs": LOG_SETTINGS,
    }

    def __post_init__(self) -> None:
        """Refuse values that could only fail later. Raises ValueError."""
        super().__post_init__()
        gates.parse(self.feature_gates)
        self.require("root_directory")
        self.require_both_or_none("tls_cert_file", "tls_private_key_file")
        if not self.mapping_file:
            names = "proxy_client_cert_file", "proxy_client_key_file", "root_ca_file"
            self.require(*names, where=" where no mapping-file says it")
        self.require_both_or_none("proxy_client_cert_file", "proxy_client_key_file")
        try:
            policy(self.egress_allow_cidr)
        except ValueError as error:
            raise ValueError(f"egress-allow-cidr {self.egress_allow_cidr!r}: {error}") from error
