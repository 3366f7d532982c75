"""The processes of a site: their command lines, and the mapping file of the proxy.

`runner` and tests start the result. Settings of `atoll start` that the site does not set itself are passed on to every
shard. Only `write_mapping` does I/O; no argument holds a secret.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import msgspec
import yaml

from atoll.frontproxy.config import GATES
from atoll.machinery.kcp.bootstrap import batteries
from atoll.machinery.meta.names import ROOT
from atoll.machinery.process import feature_gates
from atoll.machinery.process.config import Subjects
from atoll.machinery.process.private_files import write_private
from atoll.machinery.stream.permissions import shard_user
from atoll.shard.config import ShardConfig
from atoll.standalone.nats_listener import nats_url
from atoll.standalone.site.credentials import CLIENT_CA, PROXY_USER, SERVING_CA
from atoll.standalone.site.layout import GATEWAY, NATS, PROXY, Layout, Site
from atoll.standalone.site.process_files import gateway_files, proxy_files, shard_files, sources

#: Settings that a site sets for its processes; `atoll start --shards` refuses them.
SET_BY_SITE = (
    "shard_name",
    "nats_url",
    "nats_credentials_file",
    "nats_directory",
    "follow_nats_url",
    "follow_nats_credentials_file",
    "requestheader_client_ca_file",
    "requestheader_allowed_names",
    "root_ca_file",
    "tls_cert_file",
    "tls_private_key_file",
    "shard_base_url",
    "shard_virtual_workspace_url",
    "shard_labels",
    "root_shard_kubeconfig_file",
    "logical_cluster_admin_kubeconfig",
    "external_logical_cluster_admin_kubeconfig",
    "service_account_signing_key_file",
    "kubeconfig_path",
    "shard_client_cert_file",
    "shard_client_key_file",
    "shard_virtual_workspace_ca_file",
)
#: Settings that are passed on to the proxy too.
_PROXY_SETTINGS = (
    "bind_address",
    "token_auth_file",
    "authentication_config",
    "service_account_issuer",
    "api_audiences",
    "egress_allow_cidr",
    "allow_any_filesystem",
    "log_level",
    "log_format",
)
#: Settings with a value of its own in each process.
_PER_PROCESS = (
    "root_directory",
    "secure_port",
    "shard_external_url",
    "client_ca_file",
    "client_crl_file",
    "batteries_included",
    "events_bind_address",
    "events_port",
    "event_connections_per_identity",
    *SET_BY_SITE,
)


class StartConfig(ShardConfig, frozen=True, kw_only=True):
    """Settings of `atoll start`: those of a shard, the number of shards, and the edge service."""

    shards: int = 0
    edge: bool = False
    edge_replicas: int = 1

    SUMMARY: ClassVar[str] = "Run a shard with an embedded NATS server, or with --shards a sharded deployment."
    COMMON: ClassVar[Collection[str]] = (
        "root_directory",
        "bind_address",
        "secure_port",
        "shards",
        "workers",
        "feature_gates",
        "authentication_config",
        "egress_allow_cidr",
        "log_level",
        "log_requests",
    )
    SUBJECTS: ClassVar[Subjects] = {
        **ShardConfig.SUBJECTS,
        "Sharded deployment": {
            "shards": "run this number of shards and a front proxy on this machine; 0: one shard without a proxy",
            "edge": "run the edge service in root:espw: workloads for edge clusters, and its controllers",
            "edge_replicas": "processes of the edge service's controllers, which share the work",
            **ShardConfig.SUBJECTS["Sharded deployment"],
        },
    }

    @property
    def edge_processes(self) -> int:
        """Processes of the controllers of the edge service; 0 without the service."""
        return self.edge_replicas if self.edge else 0

    @property
    def shard(self) -> ShardConfig:
        """The settings of the one shard, or of every shard of a site."""
        return ShardConfig(**{name: getattr(self, name) for name in ShardConfig.__struct_fields__})


class ProcessSpec(msgspec.Struct, frozen=True):
    """One process: `arguments` follow `atoll`; `url` is its base URL."""

    name: str
    arguments: tuple[str, ...]
    url: str


def urls_of(site: Site, config: ShardConfig) -> dict[str, str]:
    """Base URLs of shards and proxy by name."""
    return {name: f"https://{config.host}:{port}" for name, port in site.ports.items() if name != NATS}


def process_specs(layout: Layout, site: Site, config: ShardConfig) -> list[ProcessSpec]:
    """The processes of a site: the root shard, the other shards, the proxy."""
    urls = urls_of(site, config)
    shards = [
        ProcessSpec(name, ("shard", *_flags(_shard(layout, site, config, name))), urls[name]) for name in site.shards
    ]
    proxy = ProcessSpec(PROXY, ("front-proxy", *_flags(_proxy(layout, site, config))), urls[PROXY])
    return [*shards, proxy]


def gateway_spec(layout: Layout, site: Site, config: ShardConfig) -> ProcessSpec:
    """The process of the event gateway."""
    values = {
        "directory": layout.gateway,
        "bind_address": config.bind_address,
        "secure_port": site.ports[GATEWAY],
        **sources(gateway_files(layout, GATEWAY, layout.credential(GATEWAY))),
        "service_account_key_file": (str(layout.account_key), *config.service_account_key_file),
        "nats_url": nats_url(config, site.ports[NATS]),
        "service_account_issuer": config.service_account_issuer,
        "connections_per_identity": config.event_connections_per_identity,
        "allow_any_filesystem": config.allow_any_filesystem,
        "log_level": config.log_level,
        "log_format": config.log_format,
    }
    return ProcessSpec(GATEWAY, ("event-gateway", *_flags(values)), urls_of(site, config)[GATEWAY])


def write_mapping(layout: Layout, urls: Mapping[str, str]) -> None:
    """Write the proxy's mapping file in kcp's format: /clusters/ and /services/ to the shards, all else to root.

    Raises OSError.
    """
    common = {
        "backend_server_ca": str(layout.certificate(SERVING_CA)),
        "proxy_client_cert": str(layout.certificate(f"proxy-{PROXY}")),
        "proxy_client_key": str(layout.key(f"proxy-{PROXY}")),
    }
    document = [{"path": "/services/"}, {"path": "/clusters/"}, {"path": "/", "backend": urls[ROOT], **common}]
    write_private(layout.mapping, yaml.safe_dump(document, sort_keys=False).encode())


def _shard(layout: Layout, site: Site, config: ShardConfig, name: str) -> dict[str, object]:
    urls = urls_of(site, config)
    return {
        **_passed_on(config),
        **sources(shard_files(layout, name, layout.credential(shard_user(name)))),
        **_common(layout, site, config, name),
        "root_directory": layout.shard(name),
        "audit_log_path": _audit_log(config.audit_log_path, name),
        "shard_name": name,
        "shard_external_url": config.shard_external_url or urls[PROXY],
        "nats_directory": layout.nats,
        "batteries_included": batteries.flags(config.batteries - {batteries.ADMIN, batteries.USER}),
    }


def _audit_log(path: str, name: str) -> str:
    """One file a shard, as processes cannot share one."""
    return str(Path(path).with_stem(f"{Path(path).stem}-{name}")) if path not in {"", "-"} else path


def _proxy(layout: Layout, site: Site, config: ShardConfig) -> dict[str, object]:
    passed_on = {name: value for name, value in _passed_on(config).items() if name in _PROXY_SETTINGS}
    if gates := feature_gates.restricted_to(config.feature_gates, GATES):
        passed_on["feature_gates"] = gates
    return {
        **passed_on,
        **sources(proxy_files(layout, PROXY, layout.credential(PROXY_USER))),
        **_common(layout, site, config, PROXY),
        "root_directory": layout.proxy,
        "mapping_file": layout.mapping,
    }


def _common(layout: Layout, site: Site, config: ShardConfig, name: str) -> dict[str, object]:
    return {
        "secure_port": site.ports[name],
        "service_account_key_file": (str(layout.account_key), *config.service_account_key_file),
        "client_ca_file": (str(layout.certificate(CLIENT_CA)), *config.client_ca_file),
        "client_crl_file": config.client_crl_file or layout.revoked,
        "nats_url": nats_url(config, site.ports[NATS]),
    }


def _passed_on(config: ShardConfig) -> dict[str, object]:
    """The settings of the site that differ from their defaults and are the same in every process."""
    defaults = ShardConfig()
    values = {name: getattr(config, name) for name in ShardConfig.__struct_fields__ if name not in _PER_PROCESS}
    return {name: value for name, value in values.items() if value != getattr(defaults, name)}


def _flags(values: Mapping[str, object]) -> Iterator[str]:
    for name, value in values.items():
        for each in value if isinstance(value, tuple) else (value,):
            text = str(each).lower() if isinstance(each, bool) else str(each)
            yield f"--{name.replace('_', '-')}={text}"
