"""The composition root of a shard: everything built top to bottom, no rules in it.

    store → kinds → bootstrap → facts, admission → authorizer, authenticator → pipeline → controllers

`standalone` starts one with an embedded NATS and serves it. Bootstrap happens before the first request is accepted,
under the loopback identity and through the same planning and admission as everything else.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog
from prometheus_client import CollectorRegistry

from atoll.controllers.facts import Facts, Identities
from atoll.controllers.registry import controllers
from atoll.machinery.apiserver.audit import AuditLog
from atoll.machinery.apiserver.authentication.keys import jwks, openid_configuration
from atoll.machinery.apiserver.authorization.attributes import Attributes
from atoll.machinery.apiserver.authorization.chain import Authorizer
from atoll.machinery.apiserver.call import View
from atoll.machinery.apiserver.catalog import Catalogs
from atoll.machinery.apiserver.core import Core
from atoll.machinery.apiserver.documents import Check, Documents, Fixed
from atoll.machinery.apiserver.loopback import Loopback
from atoll.machinery.apiserver.observe import Observing, RequestMetrics
from atoll.machinery.apiserver.pipeline import Pipeline, Route
from atoll.machinery.apiserver.requestinfo import RequestInfo
from atoll.machinery.apiserver.resources import Resources
from atoll.machinery.apiserver.reviews import Reviews
from atoll.machinery.control.manager import ControllerMetrics, Manager, Positions
from atoll.machinery.kcp import bootstrap as system
from atoll.machinery.kcp import exports
from atoll.machinery.kcp.workspace import Shard as ShardFacts
from atoll.machinery.meta import times
from atoll.machinery.meta.status import NotFound
from atoll.machinery.storage.contract import Store
from atoll.shard import bootstrap
from atoll.shard.admission.plugins import plugins
from atoll.shard.config import ShardConfig
from atoll.shard.escalation import Escalation
from atoll.shard.identity import Credentials, assemble
from atoll.shard.kinds import system_kinds
from atoll.shard.paths import PathIndex
from atoll.shard.specials import specials
from atoll.shard.version import version

log = structlog.get_logger()

MANAGER = "atoll"


class ShardApp:
    """One shard, built over an open store. `url` is what clients reach it by (no trailing slash)."""

    def __init__(self, config: ShardConfig, store: Store, credentials: Credentials, url: str) -> None:
        self.config, self.store, self.credentials, self.url = config, store, credentials, url
        self.registry = CollectorRegistry()
        self.audit = AuditLog(config.audit_log_path) if config.audit_log_path else None
        self.ready_checks: dict[str, Check] = {"ping": lambda: None}
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
        self.identity = assemble(credentials, self.authorizer)
        admission = plugins(self.facts, self._may, self._may_here, Escalation(self.authorizer))
        self.core = Core(store, Catalogs(system_kinds()), admission)
        self.loopback = Loopback(self.core, MANAGER)
        self.resources = Resources(self.core, self.authorizer, specials(self.identity, self._reviews()))

    def _bootstrap_options(self, keys: object) -> system.Options:
        assert isinstance(keys, dict)
        return system.Options(
            shard=self.config.shard_name, base_url=self.url, external_url=self.url, virtual_workspace_url=self.url,
            identity_keys=keys, installation=self.store.identity.shard_uid,
            ca_bundle=self.credentials.ca.certificate.decode(), now=times.now(),
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
        issuer = openid_configuration(self.identity.issuers.names[0], f"{self.url}/openid/v1/jwks")
        fixed = Fixed(version(), issuer, jwks(keys))
        documents = Documents(self.core.catalogs, fixed, self._health(), self.registry)
        observer = Observing(RequestMetrics(self.registry), self.audit)
        return Pipeline(
            self.store, self.paths, self.identity.authenticator, self.authorizer,
            _routes(self.resources, documents), observer,
        )  # fmt: skip

    def _health(self) -> dict[str, dict[str, Check]]:
        alive: dict[str, Check] = {"ping": lambda: None}
        return {"healthz": alive, "livez": alive, "readyz": self.ready_checks}

    def close(self) -> None:
        """Write out what the audit log still holds."""
        if self.audit is not None:
            self.audit.close()

    def manager(self, positions: Positions) -> Manager:
        """The controllers of this shard, to be run in the writer's process."""
        facts = ShardFacts(self.config.shard_name, self.url, self.credentials.ca.certificate.decode())
        found = controllers(self.loopback, self.facts, facts)
        return Manager(self.store, positions, found, ControllerMetrics(self.registry))


def _routes(resources: Resources, documents: Documents) -> Callable[[RequestInfo], Route]:
    def route(info: RequestInfo) -> Route:
        if info.service:
            # Virtual workspaces register themselves here; what is not registered is not there.
            raise NotFound("the server could not find the requested resource")
        return resources if info.is_resource else documents

    return route
