"""The ordinary pipeline over a view's own store, with the view as the only service.

`process` starts it. Users come only from the X-Remote headers of a client with a certificate of the request-header
authority. Invariant: every path other than the view's own and the health checks is refused.
"""

from __future__ import annotations

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
from atoll.machinery.apiserver.serving.watches import Watches
from atoll.machinery.apiserver.writing.commit import WriteService
from atoll.machinery.egress import Egress, policy
from atoll.machinery.storage.contract import Store
from atoll.virtualworkspace_sdk.content import Content
from atoll.virtualworkspaces.framework import VirtualWorkspace


class _Authorization:
    """Authorization outside the view's URL: health checks for everyone."""

    def authorize(self, snapshot: Reading, attributes: Attributes) -> Decision:
        """Default deny."""
        return Decision(attributes.path in ALWAYS_ALLOWED_PATHS and not attributes.cluster)


#: PEM of the request-header authorities, and the accepted common names (empty: any).
Proxies = tuple[bytes, tuple[str, ...]]


def handler(
    store: Store, name: str, content: Content, proxies: Proxies, ready: Check
) -> tuple[RequestPipeline, OpenWatches]:
    """Return the handler of the listener, and its open watches."""
    registry = CollectorRegistry()
    catalogs = Catalogs([])
    egress = Egress(policy(), registry)
    core = WriteService(store, catalogs, Admission([]), Conversions(egress, registry))
    watches, health = Watches(core), Health(store)
    health.add("rows", ready)
    documents = Documents(catalogs, StaticDocuments({}, {}, {}), health.endpoints, registry)
    certificates = Certificates(b"", *proxies)
    authenticator = Authenticator(BearerTokens((), ()), certificates, Impersonator(Authorizer()))
    pipeline = RequestPipeline(
        store,
        NoWorkspaces(),
        authenticator,
        _Authorization(),
        RequestObserver(RequestMetrics(registry)),
        Handlers(routes(Resources(core, {}, {}, watches), documents), {name: VirtualWorkspace(content)}),
    )
    return pipeline, watches.open
