"""Settings of a shard process. Settings that kcp has keep kcp's names."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import ClassVar, Final, Literal
from urllib.parse import urlsplit

from atoll.machinery.apiserver.authentication.request_header_config import REQUEST_HEADER_SETTINGS, RequestHeaderConfig
from atoll.machinery.egress.addresses import policy
from atoll.machinery.kcp.bootstrap import batteries
from atoll.machinery.kcp.sharding import replication_level
from atoll.machinery.meta.labels import label_key_errors, label_value_errors
from atoll.machinery.meta.names import ROOT
from atoll.machinery.process import feature_gates as gates
from atoll.machinery.process import logging
from atoll.machinery.process.config import LOG_SETTINGS, Subjects, comma_separated
from atoll.machinery.process.listen_address import check_listen_address
from atoll.machinery.process.server_config import LISTEN_SETTINGS
from atoll.machinery.stream.definitions import MAX_PAYLOAD_BYTES, REPLICAS
from atoll.machinery.stream.tenants.key_files import SUBSCRIPTIONS_FILE
from atoll.machinery.stream.tenants.subscriber_permissions import MOST_CONNECTIONS, SLOTS

#: The feature gates that change what a shard does; the deprecated URLs are off by default, the others on.
GATES = (
    "WorkspaceMounts",
    "EnableDeprecatedAPIExportVirtualWorkspacesUrls",
    "WorkspaceAuthentication",
    "GlobalServiceAccount",
)

MAX_WORKERS = 64
AUTO: Final = "auto"
#: Of other shards' Workspaces and LogicalClusters, a shard keeps all, or those it needs.
NEEDED: Final = "needed"
REPLICATED_WORKSPACES = ("all", NEEDED)
Workers = int | Literal["auto"]
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DURATION = re.compile(r"(?:(\d{1,8})h)?(?:(\d{1,10})m)?(?:(\d{1,10})s?)?")
_MAX_EVENTS = 100_000
_EVENT_BOUNDS = (
    "event_subscriptions_per_workspace",
    "event_connections_per_identity",
    "event_rate",
    "event_max_ack_pending",
    "event_pull_max_messages",
)
_SHORT = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)(ms|s)")
#: Bounds of service-account-max-token-expiration, as in kube-apiserver.
MIN_TOKEN_LIFE_S, MAX_TOKEN_LIFE_S = 3600, 1 << 32
#: Upper bound of the time limit for one object; conversion requests time out after it.
MAX_TRANSFORMATION_S = 30.0


class ShardConfig(RequestHeaderConfig, frozen=True, kw_only=True):
    """Settings of a shard, for `atoll start` and `atoll shard`. Paths are used unchanged; empty means off."""

    root_directory: str = ".atoll"
    kubeconfig_path: str = ""
    external_hostname: str = ""
    shard_name: str = "root"
    token_auth_file: str = ""
    client_ca_file: tuple[str, ...] = ()
    client_crl_file: str = ""
    authentication_config: str = ""
    audit_log_path: str = ""
    feature_gates: str = ""
    batteries_included: tuple[str, ...] = batteries.DEFAULT
    enable_home_workspaces: bool = True
    home_workspaces_home_creator_groups: str = "system:authenticated"
    nats_url: str = ""
    workers: Workers = 0
    log_requests: str = logging.AUTO
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
    log_retention: int = 24 * 3600
    logical_cluster_total_object_limit: int = 0
    logical_cluster_object_count_scan_interval: str = "60s"
    root_ca_file: str = ""
    shard_base_url: str = ""
    shard_external_url: str = ""
    shard_virtual_workspace_url: str = ""
    shard_labels: str = ""
    root_shard_kubeconfig_file: str = ""
    logical_cluster_admin_kubeconfig: str = ""
    external_logical_cluster_admin_kubeconfig: str = ""
    nats_credentials_file: str = ""
    nats_directory: str = ""
    events_bind_address: str = "127.0.0.1"
    events_port: int = 0
    stream_replicas: int = 0
    event_subscriptions_file: str = ""
    event_subscriptions_per_identity: int = 32
    event_subscriptions_per_workspace: int = 256
    event_rate: int = 2000
    event_connections_per_identity: int = MOST_CONNECTIONS
    event_max_ack_pending: int = 1000
    event_pull_max_messages: int = 500
    event_pull_max_bytes: int = 16 << 20
    follow_nats_url: str = ""
    follow_nats_credentials_file: str = ""
    replicated_workspaces: str = NEEDED
    default_replication_level: str = replication_level.GLOBAL
    allow_format_upgrade: bool = False

    SUMMARY: ClassVar[str] = "Run one shard of a sharded deployment."
    COMMON: ClassVar[Collection[str]] = (
        "root_directory",
        "bind_address",
        "secure_port",
        "shard_name",
        "shard_external_url",
        "root_shard_kubeconfig_file",
        "nats_url",
        "feature_gates",
        "log_level",
        "log_requests",
    )
    SUBJECTS: ClassVar[Subjects] = {
        "Server": {
            "root_directory": "directory of keys, store and kubeconfig",
            "kubeconfig_path": "file of the administrators' kubeconfig; empty: admin.kubeconfig in the root directory",
            **LISTEN_SETTINGS,
            "external_hostname": "without effect, accepted as in kcp; shard-external-url is the URL for clients",
            "workers": "API worker processes beside the writer; 0: one process for everything; auto: by the cores"
            " and the memory that it may use",
            "tls_cert_file": "PEM file with the serving certificate and its chain; empty: one is made",
            "tls_private_key_file": "PEM file with the key of that certificate",
            "root_ca_file": "PEM file with the CA that clients in workspaces trust; empty: the CA of the serving"
            " certificate",
            "feature_gates": gates.description(GATES),
        },
        "Users": {
            "authentication_config": "AuthenticationConfiguration file (OpenID Connect); reread when it changes",
            "client_ca_file": "PEM files with the CAs of client certificates; reread when they change",
            "client_crl_file": "PEM file with revocation lists (CRLs) of client certificates; reread when it changes",
            "token_auth_file": "CSV file with token,user,uid,groups; reread when it changes",
            "batteries_included": batteries.DESCRIPTION,
            "enable_home_workspaces": "create a home workspace for each user on first use",
            "home_workspaces_home_creator_groups": "comma separated groups whose members may have a home workspace",
        },
        "Service accounts": {
            "service_account_issuer": "issuer of tokens; issuers after the first are accepted, not used",
            "service_account_signing_key_file": "PEM file with the private key that signs tokens; empty: sa.key",
            "service_account_key_file": "PEM file with further keys whose tokens are accepted, such as the previous"
            " signing key",
            "service_account_max_token_expiration": "longest lifetime of a requested token, such as 24h; empty: no"
            " limit",
            "api_audiences": "audiences of tokens for this server; empty: the issuers",
        },
        "Requests forwarded by proxies": REQUEST_HEADER_SETTINGS,
        "Requests to URLs that tenants configure": {
            "egress_allow_cidr": "comma separated networks that webhooks and mounts may be in although they are"
            " loopback or this machine's own",
            "mount_proxy_client_cert_file": "PEM file with a client certificate for mounts, which then receive the"
            " user in X-Remote headers",
            "mount_proxy_client_key_file": "PEM file with the key of that certificate",
            "mount_proxy_ca_file": "PEM file with the CAs of mounts; empty: the system's",
            "conversion_cel_transformation_timeout": "time limit of the CEL transformations of an APIConversion for"
            " one object, such as 500ms or 1s",
        },
        "Store and stream": {
            "list_window": "seconds that a list can be continued and an earlier state can be listed",
            "log_retention": "seconds that changes are kept for watches and history; at least list-window",
            "allow_any_filesystem": "accept network and temporary file systems",
            "allow_format_upgrade": "bring a store of an earlier format to that of this version, after a backup in"
            " format-… beside it",
            "logical_cluster_total_object_limit": "objects that a logical cluster may hold, Events aside, unless its"
            " annotation core.kcp.io/max-total-objects says otherwise; 0: any number",
            "logical_cluster_object_count_scan_interval": "time between two looks for logical clusters above 90 % of"
            " that, for metrics; counts and limits are exact at any time",
            "nats_url": "NATS server to publish to, or several of a cluster, comma separated; if the credentials file"
            " lists one of them, all that it lists; empty: an embedded one",
            "nats_credentials_file": "JSON file with user, password, inbox_prefix and ca_file for the NATS server",
            "nats_directory": "directory of that NATS server (store/ is in it) if it is on this shard's disk: the disk"
            " bounds the changes stream then",
            "stream_replicas": "servers of a NATS cluster that have a copy of each stream of this shard: 1, 3 or 5,"
            " changed in place; 0: as many as there are",
        },
        "Event subscribers": {
            "events_bind_address": "IP address that the embedded NATS server listens on; with TLS alone unless that is"
            " loopback. Subscribers are told the host of shard-external-url, else this address",
            "events_port": "its port; 0: the one of the last start, or any free one",
            "event_subscriptions_file": "JSON file with the key of subscribers' names and the addresses of their NATS"
            " server; empty: event-subscriptions.json of the root directory. While it is missing, tenants cannot"
            " subscribe",
            "event_subscriptions_per_identity": f"subscriptions of one user on this shard, at most {SLOTS}",
            "event_subscriptions_per_workspace": "subscriptions in one workspace",
            "event_rate": "events a second that one user is delivered by this shard, on the average of some seconds",
            "event_connections_per_identity": "connections of one user at the embedded NATS server at a time",
            "event_max_ack_pending": "events of a subscription that may be out without acknowledgement",
            "event_pull_max_messages": "events that one pull may ask for",
            "event_pull_max_bytes": "bytes that one pull may ask for, at least the largest event: 8388608",
        },
        "Sharded deployment": {
            "follow_nats_url": "NATS server to read the streams of other shards from, such as that of a region; empty:"
            " the one to publish to",
            "follow_nats_credentials_file": "JSON file with a reader's user, password, inbox_prefix, ca_file and"
            " event_keys for that server; empty: nats-credentials-file",
            "shard_name": "name of this shard, a DNS label",
            "shard_labels": "comma separated key=value labels of its Shard object, such as region=eu",
            "replicated_workspaces": "Workspaces and LogicalClusters of other shards that it keeps: needed (those of"
            " clusters with exports or types, its own clusters' ancestors, its own Workspaces' clusters, and what"
            " requests depend on) or all",
            "default_replication_level": "level of exports that are written without one, but for those of root: global,"
            " organization or region",
            "shard_base_url": "URL of this shard for other components; empty: the address it listens on",
            "shard_external_url": "URL of its workspaces for clients, a front proxy's; empty: the base URL",
            "shard_virtual_workspace_url": "URL of its virtual workspaces; empty: the base URL",
            "root_shard_kubeconfig_file": "kubeconfig (context shard-base) of the root shard that this shard joins",
            "logical_cluster_admin_kubeconfig": "kubeconfig that creates logical clusters on other shards",
            "external_logical_cluster_admin_kubeconfig": "kubeconfig that changes and deletes logical clusters on"
            " other shards",
            "shard_client_cert_file": "PEM file with the client certificate for virtual workspaces on other shards,"
            " which then receive the user in X-Remote headers",
            "shard_client_key_file": "PEM file with the key of that certificate",
            "shard_virtual_workspace_ca_file": "PEM file with the CAs of those virtual workspaces; empty: the system's",
        },
        "Logs": {
            **LOG_SETTINGS,
            "log_requests": "requests in the log: none, writes, all, or auto: none in text, writes in JSON; slow and"
            " failed ones always",
            "audit_log_path": "file for audit events; - is standard output",
        },
    }

    def __post_init__(self) -> None:
        """Validate all values. Raises ValueError."""
        super().__post_init__()
        logging.check(self.log_level, requests=self.log_requests)
        gates.parse(self.feature_gates)
        _ = self.batteries
        self._check_service_accounts()
        self._check_event_limits()
        if not 0 < self.transformation_timeout_s <= MAX_TRANSFORMATION_S:
            raise ValueError(f"conversion-cel-transformation-timeout must be between 1ms and {MAX_TRANSFORMATION_S:g}s")
        self.require("root_directory")
        if self.workers != AUTO and not 0 <= self.workers <= MAX_WORKERS:
            raise ValueError(f"workers {self.workers} is not between 0 and {MAX_WORKERS}")
        if not 1 <= self.list_window <= self.log_retention:
            raise ValueError(f"list-window {self.list_window} is not between 1 and log-retention {self.log_retention}")
        if self.logical_cluster_total_object_limit < 0:
            raise ValueError("logical-cluster-total-object-limit must not be negative")
        if not self.object_count_interval_s:
            raise ValueError("logical-cluster-object-count-scan-interval must be at least 1s")
        self.require_both_or_none("mount_proxy_client_cert_file", "mount_proxy_client_key_file")
        self.require_both_or_none("shard_client_cert_file", "shard_client_key_file")
        self._check_site()
        if not _LABEL.fullmatch(self.shard_name):
            raise ValueError(f"shard-name {self.shard_name!r} is not a DNS label")
        try:
            policy(self.egress_allow_cidr)
        except ValueError as error:
            raise ValueError(f"egress-allow-cidr {self.egress_allow_cidr!r}: {error}") from error

    @property
    def kubeconfig_file(self) -> Path:
        """The administrators' kubeconfig."""
        return Path(self.kubeconfig_path or Path(self.root_directory, "admin.kubeconfig"))

    @property
    def batteries(self) -> frozenset[str]:
        """The batteries that are included. Raises ValueError."""
        return batteries.included(self.batteries_included)

    @property
    def joins(self) -> bool:
        """Whether this shard joins a root shard; otherwise it holds `root` itself."""
        return bool(self.root_shard_kubeconfig_file)

    @property
    def in_site(self) -> bool:
        """Whether the deployment has, or may have, other shards."""
        return self.joins or bool(self.logical_cluster_admin_kubeconfig)

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the Shard object. Raises ValueError."""
        found: dict[str, str] = {}
        for part in comma_separated(self.shard_labels):
            key, equals, value = part.partition("=")
            if not equals or label_key_errors(key) or label_value_errors(value):
                raise ValueError(f"shard-labels: {part!r} is no label as in region=eu")
            found[key] = value
        return found

    def check_in_site(self) -> None:
        """Validate the settings that a shard of a site requires. Raises ValueError."""
        if not self.nats_url:
            raise ValueError("nats-url: the shards of a site meet on one NATS server, name it")
        if self.shard_name != ROOT and not self.joins:
            raise ValueError(f"root-shard-kubeconfig-file: shard {self.shard_name} joins the shard root, name it")

    def _check_site(self) -> None:
        """Validate settings that depend on each other, and URLs. Raises ValueError."""
        self.require_both_or_none("tls_cert_file", "tls_private_key_file")
        if self.nats_credentials_file and not self.nats_url:
            raise ValueError("nats-credentials-file needs nats-url")
        if self.follow_nats_url and not (self.nats_url and self.in_site):
            raise ValueError("follow-nats-url is for a shard of a site: it needs nats-url, the server to publish to")
        if self.follow_nats_credentials_file and not self.follow_nats_url:
            raise ValueError("follow-nats-credentials-file needs follow-nats-url")
        if self.stream_replicas not in (0, *REPLICAS) or (self.stream_replicas > 1 and not self.nats_url):
            raise ValueError(
                "stream-replicas is 0, 1, 3 or 5, and more than 1 needs nats-url: the servers of a cluster"
            )
        if self.nats_directory and not self.nats_url:
            raise ValueError("nats-directory needs nats-url")
        if self.joins and self.shard_name == ROOT:
            raise ValueError("root-shard-kubeconfig-file: the shard named root joins nobody")
        for name in ("shard_base_url", "shard_external_url", "shard_virtual_workspace_url"):
            url = getattr(self, name)
            if url and not _is_base_url(url):
                raise ValueError(f"{name.replace('_', '-')} {url!r} is not an https URL without a slash at its end")
        _ = self.labels
        if self.replicated_workspaces not in REPLICATED_WORKSPACES:
            raise ValueError(f"replicated-workspaces: {self.replicated_workspaces!r} is neither all nor needed")
        if self.default_replication_level not in replication_level.LEVELS:
            named = ", ".join(replication_level.LEVELS)
            raise ValueError(f"default-replication-level: {self.default_replication_level!r} is none of {named}")

    def _check_event_limits(self) -> None:
        """Validate the listener and the bounds of event subscribers. Raises ValueError."""
        if self.nats_url and (self.events_bind_address, self.events_port) != ("127.0.0.1", 0):
            raise ValueError(
                "events-bind-address and events-port are of the embedded NATS server; nats-url names another"
            )
        try:
            check_listen_address(self.events_bind_address, self.events_port)
        except ValueError as error:
            raise ValueError(f"events-bind-address, events-port: {error}") from error
        if not 0 <= self.event_subscriptions_per_identity <= SLOTS:
            raise ValueError(f"event-subscriptions-per-identity must be between 0 and {SLOTS}")
        for name in _EVENT_BOUNDS:
            if not 1 <= getattr(self, name) <= _MAX_EVENTS:
                raise ValueError(f"{name.replace('_', '-')} must be between 1 and {_MAX_EVENTS}")
        if self.event_pull_max_bytes < MAX_PAYLOAD_BYTES:
            raise ValueError(f"event-pull-max-bytes must be at least {MAX_PAYLOAD_BYTES}, the largest event")

    @property
    def events_file(self) -> Path:
        """The file with the keys of event subscribers' names."""
        return Path(self.event_subscriptions_file or Path(self.root_directory, SUBSCRIPTIONS_FILE))

    @property
    def home_creators(self) -> tuple[str, ...]:
        """Groups whose members may have a home workspace; empty if home workspaces are off."""
        return comma_separated(self.home_workspaces_home_creator_groups) if self.enable_home_workspaces else ()

    def _check_service_accounts(self) -> None:
        """Validate as kube-apiserver does: an issuer with a colon is a URL, the expiration is in bounds.

        Raises ValueError.
        """
        for issuer in self.service_account_issuer:
            if not issuer or (":" in issuer and not urlsplit(issuer).scheme):
                raise ValueError(f"service-account-issuer {issuer!r} is not a URL")
        life_s = self.max_token_life_s
        if life_s and not MIN_TOKEN_LIFE_S <= life_s <= MAX_TOKEN_LIFE_S:
            raise ValueError("service-account-max-token-expiration must be between 1 hour and 2^32 seconds")

    @property
    def max_token_life_s(self) -> int:
        """Longest lifetime of a requested token in seconds; 0 for no limit. Raises ValueError."""
        return _seconds("service-account-max-token-expiration", self.service_account_max_token_expiration)

    @property
    def object_count_interval_s(self) -> int:
        """Time between two looks for logical clusters near their limit, in seconds. Raises ValueError."""
        return _seconds("logical-cluster-object-count-scan-interval", self.logical_cluster_object_count_scan_interval)

    @property
    def transformation_timeout_s(self) -> float:
        """Time limit of CEL transformations for one object, in seconds. Raises ValueError."""
        text = self.conversion_cel_transformation_timeout
        found = _SHORT.fullmatch(text)
        if found is None:
            raise ValueError(f"conversion-cel-transformation-timeout {text!r} is not a duration as in 500ms or 1s")
        return float(found[1]) / (1000 if found[2] == "ms" else 1)


def _seconds(name: str, text: str) -> int:
    """Return a duration in seconds, 0 for an empty one. Raises ValueError."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{name} {text!r} is not a duration as in 24h or 1h30m0s")
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + seconds


def _is_base_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    bare = not (parts.query or parts.fragment or parts.username) and not url.endswith("/")
    return parts.scheme == "https" and bool(parts.hostname) and bare
