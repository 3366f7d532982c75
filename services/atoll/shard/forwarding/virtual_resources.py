"""Virtual resources: kinds of an export that a virtual workspace serves at the ordinary URL of each consumer.

`resources` calls it with an authorized request whose kind stores nothing. The export references an endpoint slice,
which lists the endpoints. A request for the shard's own endpoint is served in this process; a request for any other is
forwarded over TLS with the shard's client certificate, through the egress guard, with the user in X-Remote-* headers.
Invariants: the endpoint authorizes the caller again, the caller's credentials never leave the shard, a forwarding loop
ends after MAX_HOPS, and a forwarded watch ends when the caller may no longer watch.
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
from atoll.machinery.apiserver.serving.open_watches import OpenWatches, StillAllowed
from atoll.machinery.apiserver.serving.pipeline import Route, VirtualWorkspaceHandler
from atoll.machinery.apiserver.serving.watches import still_authorized
from atoll.machinery.egress import EgressError
from atoll.machinery.egress.forward import Forwarder
from atoll.machinery.kcp.apis import virtual_storage
from atoll.machinery.kcp.apis.virtual_storage import ShardEndpoint
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.names import ROOT, SYSTEM_ADMIN, ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode, status_of
from atoll.machinery.meta.status import ApiError, InternalError, ServiceUnavailable
from atoll.machinery.meta.types import API_EXPORTS
from atoll.machinery.storage.contract import Snapshot
from atoll.shard.forwarding.forwarded_watches import tracked

log = structlog.get_logger()

HOPS = "x-kcp-virtual-resource-hops"
MAX_HOPS = 4
_COUNTS = frozenset(str(count) for count in range(MAX_HOPS + 1))


class ShardObject:
    """This shard's Shard object: labels, and the URL of its virtual workspaces."""

    def __init__(self, type: ResourceType, name: str) -> None:
        self._key = ObjectKey(type, ROOT, "", name)

    def read(self, snapshot: Snapshot) -> ShardEndpoint:
        """Return labels and URL; both are empty if the object is absent."""
        record = federated(snapshot).get(self._key)
        return virtual_storage.own_endpoint(decode(record.value)) if record is not None else ShardEndpoint({}, "")


class VirtualResources:
    """Serves virtual kinds for `resources`. `forwarder` is None without a client certificate."""

    def __init__(
        self,
        catalogs: Catalogs,
        shard: ShardObject,
        services: Mapping[str, VirtualWorkspaceHandler],
        route: Route,
        forwarder: Forwarder | None,
        watches: OpenWatches,
    ) -> None:
        self._watches = watches
        self._catalogs, self._shard, self._services, self._route = catalogs, shard, services, route
        self._forwarder = forwarder

    def serve_kind(self, request: Request, kind: Kind, snapshot: Snapshot) -> None:
        """Serve or forward the request. Raises InternalError without an endpoint, Unauthorized, and a view's errors."""
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
        request.exchange.spawn(self._forward(self._forwarder, request, kind, (url, path), headers))

    def own_catalog(self, request: Request, kind: Kind, path: str, snapshot: Snapshot) -> Catalog | None:
        """Return the catalog of this shard's own view; None if another endpoint serves the kind. Raises ApiError."""
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
        """Fetch a document from another endpoint for the caller. Raises EgressError, Unauthorized, InternalError."""
        if self._forwarder is None:
            raise unresolved(kind)
        headers = [("accept", "application/json"), (HOPS, str(request.hops + 1)), *spoken_for(request.user)]
        return await self._forwarder.fetch(url, f"/clusters/{request.cluster}{path}".encode(), headers, timeout_s)

    def url(self, kind: Kind, snapshot: Snapshot) -> str:
        """Return the endpoint that serves a virtual kind for this shard. Raises InternalError."""
        assert kind.virtual is not None
        local = self._shard.read(snapshot)
        cluster, name = kind.virtual.cluster, kind.virtual.export
        export = _read(snapshot, ObjectKey(API_EXPORTS, cluster, "", name))
        if export is not None and status_of(export).get("identityHash") != kind.identity:
            # Made anew under its name: bindings to it follow, unless they pin the earlier identity.
            export = None
        reference = virtual_storage.reference(export, kind.group, kind.plural) if export is not None else None
        slice = self._slice(snapshot, cluster, reference) if reference is not None else None
        url = virtual_storage.endpoint(slice, local) if slice is not None else ""
        if not url:
            log.warning("virtual resource has no endpoint", resource=kind.group_resource, export=name, cluster=cluster)
            raise unresolved(kind)
        return url

    def _slice(self, snapshot: Snapshot, cluster: str, reference: virtual_storage.Reference) -> Object | None:
        """Return the referenced object in the export's cluster, or None."""
        for kind in self._catalogs.of(snapshot, cluster).kinds.values():
            if (kind.group, kind.kind) == (reference.api_group, reference.kind) and not kind.namespaced:
                return _read(snapshot, ObjectKey(kind.type, cluster, "", reference.name))
        return None

    def _path(self, request: Request) -> bytes:
        """Return the request's path at the endpoint."""
        rest = inside(request.target, 2) if request.info.workspace else request.target
        return f"/clusters/{request.cluster or '*'}".encode() + rest

    def _enter(self, request: Request, target: bytes, snapshot: Snapshot) -> None:
        """Serve the request at `target` in this shard's own view."""
        request.sent_on, outer = target, request.info
        request.info, request.user = parse(request.http.method, target), bare(request.user)
        try:
            self._service(request).enter(request, snapshot)
            request.decision = request.scope.authorize(snapshot, request.info.verb)
        finally:
            # Audit events and Forbidden errors report the client's original request.
            inner, request.info = request.info, replace(outer)
        if not request.decision.allowed:
            raise forbidden(attributes_of(outer, request.user, request.cluster), request.decision.reason)
        request.info = inner
        self._route.serve(request, snapshot)

    def _service(self, request: Request) -> VirtualWorkspaceHandler:
        service = self._services.get(request.info.service)
        if service is None or request.info.workspace:
            # As in the pipeline: only paths below `/services/` reach a view.
            raise errors.not_served()
        return service

    async def _forward(
        self,
        forwarder: Forwarder,
        request: Request,
        kind: Kind,
        target: tuple[str, bytes],
        headers: list[tuple[str, str]],
    ) -> None:
        still = StillAllowed(still_authorized(request), (request.cluster, SYSTEM_ADMIN))
        work = forwarder.forward(request.exchange, *target, headers)
        try:
            done = await tracked(self._watches, request, kind, still, work)
            request.code = done.result()
        except EgressError as error:
            fail(request, ServiceUnavailable(f"the virtual resource cannot be reached: {error}"))
        except BaseException:
            # The client disconnected, the response was cut or the watch ended: log and audit the request all the same.
            request.done()
            raise
        else:
            request.done()


def unresolved(kind: Kind) -> ApiError:
    """Return the consumer's error for an export without an endpoint. The cause is in the log only."""
    resource = f"{kind.api_version}, Resource={kind.plural}"
    return InternalError(f"error resolving resource {resource}; please contact APIExport owner to resolve")


def _hops(request: Request, kind: Kind) -> int:
    """Return the hop count of a forwarded request, 0 if absent. Raises InternalError for an invalid header."""
    values = request.http.headers.get(HOPS, [])
    if len(values) > 1 or (values and values[0] not in _COUNTS):
        raise unresolved(kind)
    return int(values[0]) if values else 0


def _read(snapshot: Snapshot, key: ObjectKey) -> Object | None:
    record = federated(snapshot).get(key)
    return decode(record.value) if record is not None else None
