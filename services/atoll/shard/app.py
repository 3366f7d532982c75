"""The composition root of a shard: everything built top to bottom, no rules in it.

    store → kinds → bootstrap → facts, admission → authorizer, authenticator → pipeline → controllers

`standalone` starts one with an embedded NATS and serves it. Bootstrap happens before the first request is accepted,
under the loopback identity and through the same planning and admission as everything else.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import structlog
from prometheus_client import CollectorRegistry

from atoll.controllers.facts import Facts, Identities
from atoll.controllers.registry import controllers
from atoll.machinery.apiserver import errors
from atoll.machinery.apiserver.audit import AuditLog
from atoll.machinery.apiserver.authentication.keys import jwks, openid_configuration
from atoll.machinery.apiserver.authorization.attributes import Attributes
from atoll.machinery.apiserver.authorization.chain import Authorizer
from atoll.machinery.apiserver.call import View
from atoll.machinery.apiserver.catalog import Catalogs
from atoll.machinery.apiserver.conversion import Conversions
from atoll.machinery.apiserver.core import Core
from atoll.machinery.apiserver.documents import Documents, Fixed
from atoll.machinery.apiserver.egress import Egress, Policy, policy
from atoll.machinery.apiserver.egress.forward import Forwarder
from atoll.machinery.apiserver.health import Check, ping, store_check
from atoll.machinery.apiserver.loopback import Loopback
from atoll.machinery.apiserver.observe import Observing, RequestMetrics
from atoll.machinery.apiserver.pipeline import Doors, Pipeline, Route, Service
from atoll.machinery.apiserver.requestinfo import RequestInfo
from atoll.machinery.apiserver.resources import Resources, Special
from atoll.machinery.apiserver.reviews import Reviews
from atoll.machinery.control.manager import ControllerMetrics, Manager, Positions
from atoll.machinery.kcp import bootstrap as system
from atoll.machinery.kcp import exports
from atoll.machinery.kcp.lifecycle import INITIALIZATION, TERMINATION
from atoll.machinery.kcp.shapes import TENANCY_GROUP
from atoll.machinery.kcp.workspace import Shard as ShardFacts
from atoll.machinery.meta import times
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.process.pki import Pair
from atoll.machinery.process.tls import client_context, public_context
from atoll.machinery.storage.contract import Store
from atoll.shard import bootstrap, issuers, serviceaccounts
from atoll.shard.admission.plugins import plugins
from atoll.shard.config import ShardConfig, feature_gates
from atoll.shard.escalation import Escalation
from atoll.shard.homes import HOME, Homes
from atoll.shard.identity import Credentials, Foreign, assemble
from atoll.shard.kinds import system_kinds
from atoll.shard.mounts import Mounts
from atoll.shard.paths import PathIndex
from atoll.shard.specials import specials
from atoll.shard.version import version
from atoll.virtualworkspaces.lifecycle import LifecycleView

log = structlog.get_logger()

MANAGER = "atoll"


class ShardApp:
    """One shard, built over an open store. `url` is what clients reach it by (no trailing slash)."""

    def __init__(self, config: ShardConfig, store: Store, credentials: Credentials, url: str) -> None:
        self.config, self.store, self.credentials, self.url = config, store, credentials, url
        self.registry = CollectorRegistry()
        self.audit = AuditLog(config.audit_log_path) if config.audit_log_path else None
        self.live_checks: dict[str, Check] = {"ping": ping, "store": store_check(store)}
        self.ready_checks: dict[str, Check] = {**self.live_checks, "shutdown": lambda: None}
        keys = bootstrap.identity_keys(store)
        self.identities = Identities(
            tenancy=exports.exported_type("workspaces.tenancy.kcp.io", keys).identity,
            topology=exports.exported_type("partitions.topology.kcp.io", keys).identity,
            shards=exports.exported_type("shards.core.kcp.io", keys).identity,
        )
        self._system = self._bootstrap_options(keys)
        self.paths = PathIndex(self.identities.workspaces)
        self.facts = Facts(self.paths, self.identities)
        self.authorizer = Authorizer()
        self.egress = Egress(_egress_policy(config, url), self.registry)
        self.identity = assemble(config, credentials, self.authorizer, self._foreign())
        admission = plugins(self.facts, self._may, self._may_here, Escalation(self.authorizer))
        self.core = Core(store, Catalogs(system_kinds()), admission, Conversions(self.egress, self.registry))
        self.loopback = Loopback(self.core, MANAGER)
        self.resources = Resources(self.core, specials(self.identity, self._reviews()), self._named())

    def _foreign(self) -> Foreign:
        """Issuers beside ourselves."""
        audiences, file = serviceaccounts.issuers(self.config).audiences, self.config.authentication_config
        found = issuers.configured(file, audiences, self.egress) if file else None
        if not self._is_on("WorkspaceAuthentication"):
            return Foreign(found)
        return Foreign(found, issuers.of_workspaces(self.facts, self.egress))

    def _is_on(self, gate: str) -> bool:
        return feature_gates(self.config.feature_gates).get(gate, True)

    def _bootstrap_options(self, keys: object) -> system.Options:
        assert isinstance(keys, dict)
        return system.Options(
            shard=self.config.shard_name, base_url=self.url, external_url=self.url, virtual_workspace_url=self.url,
            identity_keys=keys, installation=self.store.identity.shard_uid,
            ca_bundle=self.credentials.ca.certificate.decode(), now=times.now(),
            home_creators=self.config.home_creators,
        )  # fmt: skip

    def _may(self, view: View, attributes: Attributes) -> bool:
        """Admission's questions about other clusters: the deep form, as kcp asks them."""
        return self.authorizer.authorize(view, attributes, deep=True).allowed

    def _may_here(self, view: View, attributes: Attributes) -> bool:
        """Admission's questions about the request's own cluster."""
        return self.authorizer.authorize(view, attributes).allowed

    def _reviews(self) -> Reviews:
        return Reviews(self.authorizer, self.identity.bearers)

    async def bootstrap(self) -> None:
        """Write what must exist before the first request."""
        written = await bootstrap.apply(self.loopback, system.bootstrap(self._system))
        log.info("bootstrapped", objects=written, shard=self.config.shard_name)

    def pipeline(self) -> Pipeline:
        """The handler of every listener."""
        keys = self.identity.keys
        issuer = openid_configuration(self.identity.issuers.names[0], f"{self.url}/openid/v1/jwks", keys)
        fixed = Fixed(version(), issuer, jwks(keys))
        documents = Documents(self.core.catalogs, fixed, self._health(), self.registry)
        observer = Observing(RequestMetrics(self.registry), self.audit)
        return Pipeline(
            self.store, self.paths, self.identity.authenticator, self.authorizer, observer,
            Doors(_routes(self.resources, documents), self._services(), self._mounts()),
        )  # fmt: skip

    def _named(self) -> dict[tuple[str, str, str], Special]:
        """Names that stand for what depends on who asks."""
        if not self.config.enable_home_workspaces:
            return {}
        return {(TENANCY_GROUP, "workspaces", HOME): Homes(self.loopback, self.facts, self._shard()).serve}

    def _shard(self) -> ShardFacts:
        return ShardFacts(self.config.shard_name, self.url, self.credentials.ca.certificate.decode())

    def _mounts(self) -> Mounts | None:
        if not self._is_on("WorkspaceMounts"):
            return None
        config, pair = self.config, None
        if config.mount_proxy_client_cert_file:
            certificate, key = config.mount_proxy_client_cert_file, config.mount_proxy_client_key_file
            pair = Pair(Path(certificate).read_bytes(), Path(key).read_bytes())
        authorities = config.mount_proxy_ca_file
        trust = client_context(Path(authorities).read_bytes(), pair) if authorities else public_context(pair)
        return Mounts(self.paths, Forwarder(self.egress, trust), authenticates=pair is not None)

    def _services(self) -> dict[str, Service]:
        """The virtual workspaces."""
        kind = self.core.catalogs.base.of_type(LOGICAL_CLUSTERS)
        assert kind is not None
        find = self.facts.workspace_type
        return {
            each.service: LifecycleView(each, kind, self.authorizer, find) for each in (INITIALIZATION, TERMINATION)
        }

    def _health(self) -> dict[str, dict[str, Check]]:
        return {"healthz": self.live_checks, "livez": self.live_checks, "readyz": self.ready_checks}

    async def close(self) -> None:
        """Write out what the audit log still holds, and close connections to webhooks."""
        await self.egress.close()
        if self.audit is not None:
            self.audit.close()

    def manager(self, positions: Positions) -> Manager:
        """The controllers of this shard, to be run in the writer's process."""
        found = controllers(self.loopback, self.facts, self._shard(), self.identity.issuer)
        manager = Manager(self.store, positions, found, ControllerMetrics(self.registry))
        self.ready_checks["controllers"] = lambda: None if manager.listed else "controllers have not listed their keys"
        return manager


def _egress_policy(config: ShardConfig, url: str) -> Policy:
    """What webhooks may be: never this shard itself, by whatever address it is reached."""
    port = urlsplit(url).port or config.secure_port
    return policy(config.egress_allow_cidr, ((config.bind_address, port),))


def _routes(resources: Resources, documents: Documents) -> Callable[[RequestInfo], Route]:
    def route(info: RequestInfo) -> Route:
        if info.service:
            # A virtual workspace leaves none in what it lets through; what is not one is not there.
            raise errors.not_served()
        return resources if info.is_resource else documents

    return route
