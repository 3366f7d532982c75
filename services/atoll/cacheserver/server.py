"""The ordinary pipeline over the cache server's store, with `/services/cache` as the only service.

`process` starts it. Users come only from client certificates. Invariant: outside `/services/cache`, health checks are
open to everyone, metrics and the version to system:masters, and all other paths are refused.
"""

from __future__ import annotations

import msgspec
from prometheus_client import CollectorRegistry

from atoll.cacheserver.cached_resources import RemoteCachedResources
from atoll.cacheserver.kinds import cache_kinds
from atoll.cacheserver.shard_filter import shard_filter
from atoll.machinery.apiserver.admission.chain import Admission
from atoll.machinery.apiserver.authentication.authenticator import Authenticator, BearerTokens
from atoll.machinery.apiserver.authentication.certificates import Certificates
from atoll.machinery.apiserver.authentication.impersonation import Impersonator
from atoll.machinery.apiserver.authorization.attributes import Attributes, Decision
from atoll.machinery.apiserver.authorization.authorizer import Authorizer
from atoll.machinery.apiserver.authorization.chain import ALWAYS_ALLOWED_PATHS
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.apiserver.conversion import Conversions
from atoll.machinery.apiserver.filtered_rows import MappedRows
from atoll.machinery.apiserver.serving.documents import Documents, StaticDocuments
from atoll.machinery.apiserver.serving.health import Check, Health, Notice
from atoll.machinery.apiserver.serving.observe import RequestMetrics, RequestObserver
from atoll.machinery.apiserver.serving.pipeline import Handlers, RequestPipeline
from atoll.machinery.apiserver.serving.resources import Resources
from atoll.machinery.apiserver.serving.routes import NoWorkspaces, routes
from atoll.machinery.apiserver.serving.watches import Watches
from atoll.machinery.apiserver.writing.commit import WriteService
from atoll.machinery.egress import Egress, policy
from atoll.machinery.egress.forward import Forwarder
from atoll.machinery.meta.objects import Object
from atoll.machinery.storage.contract import Store
from atoll.virtualworkspaces.cache import SERVICE, CacheView
from atoll.virtualworkspaces.cache_rows import WILDCARD
from atoll.virtualworkspaces.framework import VirtualWorkspace

#: Paths for operators, besides health checks.
_FOR_MASTERS = frozenset({"/metrics", "/version"})


class _Authorization:
    """Authorization outside the cache's URL."""

    def authorize(self, snapshot: View, attributes: Attributes) -> Decision:
        """Default deny."""
        if attributes.cluster or attributes.is_resource:
            return Decision(False)
        path, user = attributes.path, attributes.user
        return Decision(path in ALWAYS_ALLOWED_PATHS or (path in _FOR_MASTERS and user.is_master))


class Serving(msgspec.Struct, frozen=True):
    """State of the process besides the store: its version, the metrics registry, the readiness of the rows, whether
    another process reads its streams, and access to shards (None: without)."""

    version: Object
    registry: CollectorRegistry
    whole: Check
    contention: Check
    forwarder: Forwarder | None = None


def handler(store: Store, certificates: Certificates, serving: Serving) -> RequestPipeline:
    """Return the handler of the listener. `certificates` authenticates clients."""
    catalogs = Catalogs([])
    core = WriteService(
        store, catalogs, Admission([]), Conversions(Egress(policy(), serving.registry), serving.registry)
    )
    health = Health(store)
    health.add("rows", serving.whole)
    health.add("stream-readers", Notice(serving.contention))
    documents = Documents(catalogs, StaticDocuments(serving.version, dict, dict), health.endpoints, serving.registry)
    authenticator = Authenticator(BearerTokens((), ()), certificates, Impersonator(Authorizer()))

    def rows_of(shard: str) -> MappedRows | None:
        return shard_filter(store, shard) if shard != WILDCARD else None

    content = CacheView(cache_kinds(), rows_of, serving.whole, RemoteCachedResources(serving.forwarder))
    return RequestPipeline(
        store,
        NoWorkspaces(),
        authenticator,
        _Authorization(),
        RequestObserver(RequestMetrics(serving.registry)),
        Handlers(routes(Resources(core, {}, {}, Watches(core)), documents), {SERVICE: VirtualWorkspace(content)}),
    )
