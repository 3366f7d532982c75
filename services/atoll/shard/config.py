"""Settings of a shard process. The names are kcp's where kcp has the setting."""

from __future__ import annotations

import ipaddress
import re
from typing import ClassVar
from urllib.parse import urlsplit

import msgspec

from atoll.machinery.apiserver.egress.addresses import policy

#: kcp's feature gates and the Kubernetes ones it documents; anything else is refused.
FEATURE_GATES = (
    "WorkspaceMounts", "CacheAPIs", "EnableDeprecatedAPIExportVirtualWorkspacesUrls", "WorkspaceAuthentication",
    "LogicalClusterMigration", "StorageVersionAPI", "GlobalServiceAccount", "WatchList", "ListFromCacheSnapshot",
)  # fmt: skip


LOG_LEVELS = ("debug", "info", "warning", "error")
MAX_WORKERS = 64
_HEADER = re.compile(r"[A-Za-z0-9-]{1,128}")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DURATION = re.compile(r"(?:(\d{1,8})h)?(?:(\d{1,10})m)?(?:(\d{1,10})s?)?")
_SHORT = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)(ms|s)")
#: Bounds of the longest life of service account tokens, as Kubernetes has them.
MIN_TOKEN_LIFE_S, MAX_TOKEN_LIFE_S = 3600, 1 << 32
#: Nobody waits longer for a conversion, so no object may take longer.
MAX_TRANSFORMATION_S = 30.0


class ShardConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What `atoll start` can be told. Paths are taken as given; empty means off."""

    root_directory: str = ".atoll"
    bind_address: str = "127.0.0.1"
    secure_port: int = 6443
    shard_name: str = "root"
    token_auth_file: str = ""
    client_ca_file: str = ""
    authentication_config: str = ""
    audit_log_path: str = ""
    feature_gates: str = ""
    skip_admin_user: bool = False
    enable_home_workspaces: bool = True
    home_workspaces_home_creator_groups: str = "system:authenticated"
    nats_url: str = ""
    workers: int = 0
    log_level: str = "info"
    allow_any_filesystem: bool = False
    egress_allow_cidr: str = ""
    mount_proxy_client_cert_file: str = ""
    mount_proxy_client_key_file: str = ""
    mount_proxy_ca_file: str = ""
    shard_client_cert_file: str = ""
    shard_client_key_file: str = ""
    shard_virtual_workspace_ca_file: str = ""
    list_window: int = 300
    conversion_cel_transformation_timeout: str = "1s"
    service_account_issuer: tuple[str, ...] = ()
    service_account_signing_key_file: str = ""
    service_account_key_file: tuple[str, ...] = ()
    service_account_max_token_expiration: str = ""
    api_audiences: tuple[str, ...] = ()
    requestheader_client_ca_file: str = ""
    requestheader_allowed_names: str = ""
    requestheader_username_headers: str = "X-Remote-User"
    requestheader_group_headers: str = "X-Remote-Group"
    requestheader_uid_headers: str = "X-Remote-Uid"
    requestheader_extra_headers_prefix: str = "X-Remote-Extra-"
    log_retention: int = 24 * 3600

    __descriptions__: ClassVar[dict[str, str]] = {
        "root_directory": "where keys, store and kubeconfig are kept",
        "bind_address": "address to listen on",
        "secure_port": "HTTPS port; 0 picks a free one",
        "shard_name": "name of this shard, one DNS label",
        "token_auth_file": "CSV file with token,user,uid,groups",
        "client_ca_file": "PEM file with authorities of client certificates, read anew on change",
        "authentication_config": "file with an AuthenticationConfiguration (OpenID Connect), read anew on change",
        "audit_log_path": "file for audit events; - is standard output",
        "feature_gates": "comma separated Gate=true|false",
        "skip_admin_user": "create no kcp-admin and shard-admin users",
        "enable_home_workspaces": "give each user a home workspace on first use",
        "home_workspaces_home_creator_groups": "comma separated groups whose members may have one",
        "nats_url": "a NATS server to publish to, instead of the embedded one",
        "workers": "API worker processes beside the writer; 0: everything in one process",
        "log_level": "debug, info, warning or error",
        "allow_any_filesystem": "accept network and temporary file systems",
        "egress_allow_cidr": "comma separated networks that webhooks may be in, though they are loopback or our own",
        "service_account_issuer": "issuer of service account tokens; those named after the first are accepted too",
        "service_account_signing_key_file": "PEM file with the private key that signs them, in place of sa.key",
        "service_account_key_file": "PEM file with keys whose tokens count as well, as that of the last signing key",
        "service_account_max_token_expiration": "longest life of a requested token, as in 24h; empty: no bound",
        "api_audiences": "audiences that tokens for this server have; empty: the issuers",
        "requestheader_client_ca_file": "PEM file with authorities of proxies that name users in headers, read anew"
        " on change",
        "requestheader_allowed_names": "comma separated common names of such proxies; empty: any that is signed",
        "requestheader_username_headers": "comma separated headers that name the user",
        "requestheader_group_headers": "comma separated headers that name groups",
        "requestheader_uid_headers": "comma separated headers with the user's uid",
        "requestheader_extra_headers_prefix": "comma separated prefixes of headers with more about the user",
        "mount_proxy_client_cert_file": "PEM file; with it, mounts are told in X-Remote headers who asks",
        "mount_proxy_client_key_file": "PEM file with the key of that certificate",
        "mount_proxy_ca_file": "PEM file with the authorities of mounts, in place of the system's",
        "conversion_cel_transformation_timeout": "what the CEL transformations of an APIConversion may take for one"
        " object, as in 500ms or 1s",
        "shard_client_cert_file": "PEM file; with it, virtual workspaces elsewhere are asked, and told who asks",
        "shard_client_key_file": "PEM file with the key of that certificate",
        "shard_virtual_workspace_ca_file": "PEM file with their authorities, in place of the system's",
        "list_window": "seconds that a list can be paged through and an earlier state be listed",
        "log_retention": "seconds that changes are kept for watches and history; not below list-window",
    }

    def __post_init__(self) -> None:
        """Refuse what could only fail later. Raises ValueError with what is wrong."""
        self._check_headers()
        self._check_service_accounts()
        if not 0 < self.transformation_timeout_s <= MAX_TRANSFORMATION_S:
            raise ValueError(f"conversion-cel-transformation-timeout must be between 1ms and {MAX_TRANSFORMATION_S:g}s")
        if not self.root_directory:
            raise ValueError("root-directory must not be empty")
        if not 0 <= self.secure_port <= 65535:
            raise ValueError(f"secure-port {self.secure_port} is not between 0 and 65535")
        if not 0 <= self.workers <= MAX_WORKERS:
            raise ValueError(f"workers {self.workers} is not between 0 and {MAX_WORKERS}")
        if not 1 <= self.list_window <= self.log_retention:
            raise ValueError(f"list-window {self.list_window} is not between 1 and log-retention {self.log_retention}")
        if bool(self.mount_proxy_client_cert_file) != bool(self.mount_proxy_client_key_file):
            raise ValueError("mount-proxy-client-cert-file and mount-proxy-client-key-file go together")
        if bool(self.shard_client_cert_file) != bool(self.shard_client_key_file):
            raise ValueError("shard-client-cert-file and shard-client-key-file go together")
        if not _LABEL.fullmatch(self.shard_name):
            raise ValueError(f"shard-name {self.shard_name!r} is not a DNS label")
        if self.log_level not in LOG_LEVELS:
            raise ValueError(f"log-level {self.log_level!r} is none of {', '.join(LOG_LEVELS)}")
        try:
            policy(self.egress_allow_cidr)
        except ValueError as error:
            raise ValueError(f"egress-allow-cidr {self.egress_allow_cidr!r}: {error}") from error
        try:
            ipaddress.ip_address(self.bind_address)
        except ValueError as error:
            raise ValueError(f"bind-address {self.bind_address!r} is not an IP address") from error

    @property
    def home_creators(self) -> tuple[str, ...]:
        """Groups whose members may have a home workspace; none where there are no homes."""
        groups = tuple(filter(None, (part.strip() for part in self.home_workspaces_home_creator_groups.split(","))))
        return groups if self.enable_home_workspaces else ()

    def _check_service_accounts(self) -> None:
        """As kube-apiserver: an issuer with a colon is a URL, a bound is sensible. Raises ValueError."""
        for issuer in self.service_account_issuer:
            if not issuer or (":" in issuer and not urlsplit(issuer).scheme):
                raise ValueError(f"service-account-issuer {issuer!r} is not a URL")
        life_s = self.max_token_life_s
        if life_s and not MIN_TOKEN_LIFE_S <= life_s <= MAX_TOKEN_LIFE_S:
            raise ValueError("service-account-max-token-expiration must be between 1 hour and 2^32 seconds")

    @property
    def max_token_life_s(self) -> int:
        """Seconds; 0 for no bound. Raises ValueError."""
        text = self.service_account_max_token_expiration
        found = _DURATION.fullmatch(text)
        if found is None:
            raise ValueError(f"service-account-max-token-expiration {text!r} is not a duration as in 24h or 1h30m0s")
        hours, minutes, seconds = (int(part or 0) for part in found.groups())
        return hours * 3600 + minutes * 60 + seconds

    @property
    def transformation_timeout_s(self) -> float:
        """Seconds. Raises ValueError."""
        text = self.conversion_cel_transformation_timeout
        found = _SHORT.fullmatch(text)
        if found is None:
            raise ValueError(f"conversion-cel-transformation-timeout {text!r} is not a duration as in 500ms or 1s")
        return float(found[1]) / (1000 if found[2] == "ms" else 1)

    def _check_headers(self) -> None:
        """Identity headers must be names, and one must name the user. Raises ValueError."""
        for field in ("username_headers", "group_headers", "uid_headers", "extra_headers_prefix"):
            names = comma_separated(getattr(self, f"requestheader_{field}"))
            flag = f"requestheader-{field.replace('_', '-')}"
            if not all(_HEADER.fullmatch(name) for name in names):
                raise ValueError(f"{flag} holds what is no name of a header")
            if not names and field == "username_headers":
                raise ValueError(f"{flag} must not be empty")

    @property
    def host(self) -> str:
        """Where clients on this machine find the shard, as it stands in a URL."""
        address = ipaddress.ip_address(self.bind_address)
        if address.is_unspecified:
            return "127.0.0.1" if address.version == 4 else "[::1]"
        return str(address) if address.version == 4 else f"[{address}]"


def comma_separated(text: str) -> tuple[str, ...]:
    """The parts of a setting that is a list."""
    return tuple(filter(None, (part.strip() for part in text.split(","))))


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
