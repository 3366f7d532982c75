"""The non-resource paths of a server: discovery, OpenAPI, version, health, metrics.

`routes` sends authorized non-resource requests here. Invariant: a path that is not listed is a 404.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Reply
from atoll.machinery.apiserver.call.negotiation import JSON, choose
from atoll.machinery.apiserver.catalog import discovery
from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.apiserver.catalog.discovery import Document
from atoll.machinery.apiserver.openapi.serving import OpenApi
from atoll.machinery.apiserver.request import Request
from atoll.machinery.apiserver.rest.present import document
from atoll.machinery.apiserver.serving import health
from atoll.machinery.apiserver.serving.health import Check
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.objects import Object, decode, encode_json
from atoll.machinery.meta.status import ApiError
from atoll.machinery.storage.contract import Snapshot

HEALTH = ("healthz", "livez", "readyz")
#: Bound of the cache of discovery documents, in bytes.
MAX_BYTES = 32 * 1024 * 1024
#: Paths beside resources and health.
_PATHS = (
    "/.well-known/openid-configuration",
    "/api",
    "/apis",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/openid/v1/jwks",
    "/version",
)
#: Paths of documents that describe kinds.
_OF_KINDS = ("api", "apis", "openapi")
_CACHED_FOR_AN_HOUR = (("cache-control", "public, max-age=3600"),)


class StaticDocuments(msgspec.Struct, frozen=True):
    """Documents that stay constant while a process runs, but for those of keys, which may be replaced."""

    version: Object
    openid_configuration: Callable[[], Object]
    jwks: Callable[[], Object]


class VirtualVerbs(Protocol):
    """Verbs of virtual resources, as their endpoints report them."""

    async def serve_with_verbs(
        self, request: Request, catalog: Catalog, serve: Callable[[Request, Snapshot], None]
    ) -> None:
        """Serve the request with a catalog in which virtual resources have the verbs that their endpoints allow."""


class Documents:
    """Serves non-resource requests. The health endpoints run `checks` in order.

    `gather` returns the metrics of several processes; without it they are those of `registry`.
    """

    def __init__(
        self,
        catalogs: Catalogs,
        fixed: StaticDocuments,
        checks: Mapping[str, Mapping[str, Check]],
        registry: CollectorRegistry,
        virtual: VirtualVerbs | None = None,
        gather: Callable[[], Awaitable[bytes]] | None = None,
    ) -> None:
        self._catalogs, self._fixed, self._checks, self._registry = catalogs, fixed, checks, registry
        self._discovery: LruCache[tuple[bytes, str], Document] = LruCache(MAX_BYTES, lambda made: len(made.body))
        self._openapi = OpenApi()
        self._virtual, self._gather = virtual, gather

    def serve(self, request: Request, snapshot: Snapshot) -> None:
        """Answer by the first path segment. Raises NotFound for an unlisted one."""
        if request.info.method not in {"GET", "HEAD"}:
            raise errors.method_not_allowed()
        segments = request.info.path.strip("/").split("/")
        own_kinds = request.cluster and request.scope.catalog is None and segments[0] in _OF_KINDS
        if self._virtual is not None and own_kinds:
            catalog = self._catalogs.for_request(snapshot, request.cluster)
            if catalog.virtual:
                request.exchange.spawn(self._virtual.serve_with_verbs(request, catalog, self.serve))
                return
        if segments[0] == "openapi":
            self._openapi.serve(request, self._catalog(request, snapshot), segments)
            return
        if segments[0] == "metrics":
            if request.info.workspace:
                raise ApiError("metrics are served for the whole shard only", code=501, reason="NotImplemented")
            request.exchange.spawn(request.reply_later(self._metrics()))
            return
        answers: dict[str, Callable[[Request, Snapshot, list[str]], Reply]] = {
            "": self._root,
            "api": self._api,
            "apis": self._apis,
            "version": self._version,
            "openid": self._jwks,
            ".well-known": self._issuer,
            **dict.fromkeys(HEALTH, self._health),
        }
        answer = answers.get(segments[0])
        if answer is None:
            raise errors.not_served()
        work = request.reply_read(answer(request, snapshot, segments))
        if work is not None:
            request.spawn(work)

    def _catalog(self, request: Request, snapshot: Snapshot) -> Catalog:
        if request.scope.catalog is not None:
            return request.scope.catalog
        return self._catalogs.for_request(snapshot, request.cluster) if request.cluster else self._catalogs.base

    # --- discovery ---

    def _api(self, request: Request, snapshot: Snapshot, segments: list[str]) -> Reply:
        catalog = self._catalog(request, snapshot)
        if len(segments) == 1:
            version = _aggregated_version(request, catalog)
            if version:
                return self._aggregated(request, catalog, version, core=True)
            return _legacy(request, discovery.api_versions(catalog, request.http.header("host")))
        if len(segments) == 2:
            return self._resources(request, catalog, "", segments[1])
        raise errors.not_served()

    def _apis(self, request: Request, snapshot: Snapshot, segments: list[str]) -> Reply:
        catalog = self._catalog(request, snapshot)
        if len(segments) == 1:
            version = _aggregated_version(request, catalog)
            if version:
                return self._aggregated(request, catalog, version, core=False)
            return _legacy(request, self._once(catalog.mark, "apis", lambda: discovery.group_list(catalog)))
        if len(segments) == 2:
            return _legacy(request, discovery.group(catalog, segments[1]))
        if len(segments) == 3:
            return self._resources(request, catalog, segments[1], segments[2])
        raise errors.not_served()

    def _aggregated(self, request: Request, catalog: Catalog, version: str, *, core: bool) -> Reply:
        name = f"{'api' if core else 'apis'}:{version}"
        made = self._once(catalog.mark, name, lambda: discovery.aggregated(catalog, version, core=core))
        return cached(request, made)

    def _resources(self, request: Request, catalog: Catalog, group: str, version: str) -> Reply:
        mark = catalog.version_marks.get((group, version))
        if mark is None:
            raise errors.not_served()
        made = self._once(mark, "resources", lambda: discovery.resource_list(catalog, group, version))
        return _legacy(request, made)

    def _once(self, mark: bytes, name: str, make: Callable[[], Document]) -> Document:
        """Return the cached document of all clusters with these kinds, or make it."""
        found = self._discovery.get((mark, name))
        if found is None:
            found = make()
            self._discovery.put((mark, name), found)
        return found

    # --- the rest ---

    def _root(self, request: Request, snapshot: Snapshot, segments: list[str]) -> Reply:
        catalog = self._catalog(request, snapshot)
        paths = {*_PATHS, *(f"/{name}" for name in HEALTH)}
        paths |= {f"/{name}/{check}" for name in HEALTH for check in self._checks[name]}
        for group, version in catalog.versions:
            paths |= {f"/apis/{group}", f"/apis/{group}/{version}"} if group else {f"/api/{version}"}
        return document(choose(request.http.header("accept")), {"paths": sorted(paths)})

    def _version(self, request: Request, snapshot: Snapshot, segments: list[str]) -> Reply:
        if len(segments) > 1:
            raise errors.not_served()
        return document(choose(request.http.header("accept")), self._fixed.version)

    def _jwks(self, request: Request, snapshot: Snapshot, segments: list[str]) -> Reply:
        if segments[1:] != ["v1", "jwks"]:
            raise errors.not_served()
        return Reply(200, encode_json(self._fixed.jwks()), "application/jwk-set+json", _CACHED_FOR_AN_HOUR)

    def _issuer(self, request: Request, snapshot: Snapshot, segments: list[str]) -> Reply:
        if segments[1:] != ["openid-configuration"]:
            raise errors.not_served()
        return Reply(200, encode_json(self._fixed.openid_configuration()), JSON, _CACHED_FOR_AN_HOUR)

    async def _metrics(self) -> Reply:
        text = generate_latest(self._registry) if self._gather is None else await self._gather()
        return Reply(200, text, CONTENT_TYPE_LATEST)

    def _health(self, request: Request, snapshot: Snapshot, segments: list[str]) -> Reply:
        endpoint, checks = segments[0], self._checks[segments[0]]
        if len(segments) > 1:
            return health.one(endpoint, checks, "/".join(segments[1:]))
        return health.all_of(endpoint, checks, request.http.target.partition(b"?")[2].decode("utf-8", "replace"))


def _aggregated_version(request: Request, catalog: Catalog) -> str | None:
    return None if catalog.legacy_discovery else discovery.aggregated_version(request.http.header("accept"))


def _legacy(request: Request, made: Document | None) -> Reply:
    if made is None:
        raise errors.not_served()
    form = choose(request.http.header("accept"), transforms=False)
    return Reply(200, made.body) if form.is_plain else document(form, decode(made.body))


def cached(request: Request, made: Document) -> Reply:
    """Return a document with its ETag, or 304 if the client has it."""
    quoted = f'"{made.etag}"'
    headers = (("etag", quoted), ("vary", "Accept"), ("cache-control", "public"))
    if quoted in {tag.strip() for tag in request.http.header("if-none-match").split(",")}:
        return Reply(304, b"", made.content_type, headers)
    return Reply(200, made.body, made.content_type, headers)
