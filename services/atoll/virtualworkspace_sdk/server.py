"""The ordinary pipeline over the views' own store, with the views as the only services.

`process` starts it. Users come only from the X-Remote headers of a client with a certificate of the request-header
authority, and from certificates of the client authority if there is one. Invariant: every path other than the views'
own, the health checks and, for system:masters, the metrics is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from prometheus_client import CollectorRegistry

from atoll.machinery.apiserver.admission.chain import Admission
from atoll.machinery.apiserver.authentication.authenticator import Authenticator, BearerTokens
from atoll.machinery.apiserver.authentication.certificates import Certificates
from atoll.machinery.apiserver.authentication.impersonation import Impersonator
from atoll.machinery.apiserver.authorization.attributes import Attributes, Decision
from atoll.machinery.apiserver.authorization.authorizer import Authorizer
from atoll.machinery.apiserver.authorization.chain import ALWAYS_ALLOWED_PATHS
from atoll.machinery.apiserver.call.call import View as Reading
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.apiserver.conversion import Conversions
from atoll.machinery.apiserver.serving.documents import Documents, StaticDocuments
from atoll.machinery.apiserver.serving.health import Check, Health
from atoll.machinery.apiserver.serving.observe import RequestMetrics, RequestObserver
from atoll.machinery.apiserver.serving.open_watches import OpenWatches
from atoll.machinery.apiserver.serving.pipeline import Handlers, RequestPipeline
from atoll.machinery.apiserver.serving.resources import Resources
from atoll.machinery.apiserver.serving.routes import NoWorkspaces, routes
from atoll.machinery.apiserver.serving.version import version
from atoll.machinery.apiserver.serving.watches import Watches
from atoll.machinery.egress import Egress, policy
from atoll.machinery.storage.contract import Store
from atoll.virtualworkspace_sdk.content import Content
from atoll.virtualworkspace_sdk.view_writes import ViewWriteService
from atoll.virtualworkspace_sdk.writer import Writer
from atoll.virtualworkspaces.framework import VirtualWorkspace

#: Paths for operators, besides health checks.
_FOR_MASTERS = frozenset({"/metrics", "/version"})


class _Authorization:
    """Authorization outside the views' URLs: health checks for everyone, metrics for system:masters."""

    def authorize(self, snapshot: Reading, attributes: Attributes) -> Decision:
        """Default deny."""
        if attributes.cluster or attributes.is_resource:
            return Decision(False)
        path, user = attributes.path, attributes.user
        return Decision(path in ALWAYS_ALLOWED_PATHS or (path in _FOR_MASTERS and user.is_master))


class Serving(msgspec.Struct, frozen=True):
    """What is served: the views by name, who writes them, and whether their rows are complete.

    `certificates` knows the authorities of proxies, and of clients. `registry` has the metrics of the process.
    """

    contents: Mapping[str, Content]
    writer: Writer
    certificates: Certificates
    registry: CollectorRegistry
    ready: Check


def handler(store: Store, serving: Serving) -> tuple[RequestPipeline, OpenWatches]:
    """Return the handler of the listener, and its open watches."""
    registry, catalogs = serving.registry, Catalogs([])
    egress = Egress(policy(), registry)
    core = ViewWriteService(store, catalogs, Admission([]), Conversions(egress, registry), writer=serving.writer)
    watches, health = Watches(core), Health(store)
    health.add("rows", serving.ready)
    documents = Documents(catalogs, StaticDocuments(version(), dict, dict), health.endpoints, registry)
    authenticator = Authenticator(BearerTokens((), ()), serving.certificates, Impersonator(Authorizer()))
    views = {name: VirtualWorkspace(content) for name, content in serving.contents.items()}
    pipeline = RequestPipeline(
        store,
        NoWorkspaces(),
        authenticator,
        _Authorization(),
        RequestObserver(RequestMetrics(registry)),
        Handlers(routes(Resources(core, {}, {}, watches), documents), views),
    )
    return pipeline, watches.open
