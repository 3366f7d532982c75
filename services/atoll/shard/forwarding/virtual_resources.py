"""Virtual resources: kinds of an export that a virtual workspace serves, behind the ordinary URL of each consumer.

`resources` comes here with a request that was authorized like any other and whose kind stores nothing. The export names
an endpoint slice, and that the endpoints. One that is this shard's own is entered in this process, as if it had been
asked for by its URL; any other is asked over TLS with the shard's client certificate, through the egress guard, and
told in X-Remote-* headers for whom. Invariant: the endpoint judges the caller again, nobody's credentials leave the
shard, and a circle of forwards ends after MAX_HOPS.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog
from msgspec.structs import replace

from atoll.machinery.apiserver.authorization.attributes import attributes_of
from atoll.machinery.apiserver.authorization.refusal import forbidden
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.requestinfo import inside, parse
from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.apiserver.forwarded_identity import CREDENTIALS, IDENTITY, bare, passed_on, spoken_for
from atoll.machinery.apiserver.request import Request, RequestScope, fail
from atoll.machinery.apiserver.serving.pipeline import Route, VirtualWorkspaceHandler
from atoll.machinery.egress import EgressError
from atoll.machinery.egress.forward import Forwarder
from atoll.machinery.kcp.apis import virtual_storage
from atoll.machinery.kcp.apis.virtual_storage import ShardEndpoint
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.names import ROOT, ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.status import ApiError, InternalError, ServiceUnavailable
from atoll.machinery.meta.types import API_EXPORTS
from atoll.machinery.storage.contract import Snapshot

log = structlog.get_logger()

HOPS = "x-kcp-virtual-resource-hops"
MAX_HOPS = 4
_COUNTS = frozenset(str(count) for count in range(MAX_HOPS + 1))


class ShardObject:
    """What this shard says of itself: labels, and the URL of its virtual workspaces."""

    def __init__(self, type: ResourceType, name: str) -> None:
        self._key = ObjectKey(type, ROOT, "", name)

    def read(self, snapshot: Snapshot) -> ShardEndpoint:
        """As it stands; without labels and URL where there is no such object."""
        record = federated(snapshot).get(self._key)
        return virtual_storage.here(decode(record.value)) if record is not None else ShardEndpoint({}, "")


class VirtualResources:
    """`resources.Elsewhere`. `forwarder` None: there is no certificate to ask others with."""

    def __init__(
        self,
        catalogs: Catalogs,
        shard: ShardObject,
        services: Mapping[str, VirtualWorkspaceHandler],
        route: Route,
        forwarder: Forwarder | None,
    ) -> None:
        self._catalogs, self._shard, self._services, self._route = catalogs, shard, services, route
        self._forwarder = forwarder

    def serve_kind(self, request: Request, kind: Kind, snapshot: Snapshot) -> None:
        """Pass it on. Raises InternalError where no endpoint is found, Unauthorized, and what a view raises."""
        if request.info.identity is not None:
            raise errors.not_served()
        request.hops = (request.hops or _hops(request, kind)) + 1
        if request.hops > MAX_HOPS:
            raise unresolved(kind)
        url, path = self.url(kind, snapshot), self._path(request)
        if (own := virtual_storage.own_path(url, self._shard.read(snapshot))) is not None:
            self._enter(request, own.encode() + path, snapshot)
            return
        if self._forwarder is None:
            raise unresolved(kind)
        headers = [*passed_on(request.http.headers, (*IDENTITY, *CREDENTIALS)), *spoken_for(request.user)]
        headers.append((HOPS, str(request.hops)))
        request.exchange.spawn(self._forward(self._forwarder, request, (url, path), headers))

    def own_catalog(self, request: Request, kind: Kind, path: str, snapshot: Snapshot) -> Catalog | None:
        """What our own view serves to the caller, None if another endpoint serves the kind. Raises ApiError."""
        own = virtual_storage.own_path(self.url(kind, snapshot), self._shard.read(snapshot))
        if own is None:
            return None
        target = f"{own}/clusters/{request.cluster}{path}".encode()
        probe = replace(
            request, info=parse("GET", target), sent_on=target, scope=RequestScope(), user=bare(request.user)
        )
        self._service(probe).enter(probe, snapshot)
        return probe.scope.catalog

    async def fetch(self, request: Request, kind: Kind, url: str, path: str, timeout_s: float) -> bytes:
        """A document of another endpoint, for the caller. Raises EgressError, Unauthorized, InternalError."""
        if self._forwarder is None:
            raise unresolved(kind)
        headers = [("accept", "application/json"), (HOPS, str(request.hops + 1)), *spoken_for(request.user)]
        return await self._forwarder.fetch(url, f"/clusters/{request.cluster}{path}".encode(), headers, timeout_s)

    def url(self, kind: Kind, snapshot: Snapshot) -> str:
        """The endpoint that serves a virtual kind for this shard. Raises InternalError."""
        assert kind.virtual is not None
        here = self._shard.read(snapshot)
        cluster, name = kind.virtual.cluster, kind.virtual.export
        export = _read(snapshot, ObjectKey(API_EXPORTS, cluster, "", name))
        reference = virtual_storage.reference(export, kind.group, kind.plural) if export is not None else None
        slice = self._slice(snapshot, cluster, reference) if reference is not None else None
        url = virtual_storage.endpoint(slice, here) if slice is not None else ""
        if not url:
            log.warning("virtual resource has no endpoint", resource=kind.group_resource, export=name, cluster=cluster)
            raise unresolved(kind)
        return url

    def _slice(self, snapshot: Snapshot, cluster: str, reference: virtual_storage.Reference) -> Object | None:
        """The object that a reference names, beside the export."""
        for kind in self._catalogs.of(snapshot, cluster).kinds.values():
            if (kind.group, kind.kind) == (reference.api_group, reference.kind) and not kind.namespaced:
                return _read(snapshot, ObjectKey(kind.type, cluster, "", reference.name))
        return None

    def _path(self, request: Request) -> bytes:
        """What the request asks of the endpoint."""
        rest = inside(request.target, 2) if request.info.workspace else request.target
        return f"/clusters/{request.cluster or '*'}".encode() + rest

    def _enter(self, request: Request, target: bytes, snapshot: Snapshot) -> None:
        """Go on with what the request is inside of our own view."""
        request.sent_on, outer = target, request.info
        request.info, request.user = parse(request.http.method, target), bare(request.user)
        try:
            self._service(request).enter(request, snapshot)
            request.decision = request.scope.judge(snapshot, request.info.verb)
        finally:
            # Audit and refusals tell of what the client asked for.
            inner, request.info = request.info, replace(outer)
        if not request.decision.allowed:
            raise forbidden(attributes_of(outer, request.user, request.cluster), request.decision.reason)
        request.info = inner
        self._route.serve(request, snapshot)

    def _service(self, request: Request) -> VirtualWorkspaceHandler:
        service = self._services.get(request.info.service)
        if service is None or request.info.workspace:
            # As in the pipeline: views are asked for below `/services/` alone, or they would read the path otherwise.
            raise errors.not_served()
        return service

    async def _forward(
        self, forwarder: Forwarder, request: Request, where: tuple[str, bytes], headers: list[tuple[str, str]]
    ) -> None:
        try:
            request.code = await forwarder.forward(request.exchange, *where, headers)
        except EgressError as error:
            fail(request, ServiceUnavailable(f"the virtual resource cannot be reached: {error}"))
        except BaseException:
            # The client left, or the answer could not be passed on: told all the same.
            request.done()
            raise
        else:
            request.done()


def unresolved(kind: Kind) -> ApiError:
    """What consumers hear where the export leads nowhere; why is the provider's business."""
    resource = f"{kind.api_version}, Resource={kind.plural}"
    return InternalError(f"error resolving resource {resource}; please contact APIExport owner to resolve")


def _hops(request: Request, kind: Kind) -> int:
    """How often others passed a request on. Raises InternalError for nonsense."""
    values = request.http.headers.get(HOPS, [])
    if len(values) > 1 or (values and values[0] not in _COUNTS):
        raise unresolved(kind)
    return int(values[0]) if values else 0


def _read(snapshot: Snapshot, key: ObjectKey) -> Object | None:
    record = federated(snapshot).get(key)
    return decode(record.value) if record is not None else None
