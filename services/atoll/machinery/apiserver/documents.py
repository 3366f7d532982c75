"""The fixed documents of a server: discovery, OpenAPI, version, health, metrics.

Routes here answer authorized non-resource requests. What is not listed is refused with 404: a new path must be
written down to exist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from atoll.machinery.apiserver import discovery, openapi
from atoll.machinery.apiserver.call import Reply
from atoll.machinery.apiserver.catalog import Catalog, Catalogs
from atoll.machinery.apiserver.discovery import Document
from atoll.machinery.apiserver.negotiation import JSON, choose
from atoll.machinery.apiserver.pipeline import Request
from atoll.machinery.apiserver.resources import method_not_allowed
from atoll.machinery.apiserver.rest.present import document
from atoll.machinery.meta.objects import Object, decode, encode_json
from atoll.machinery.meta.status import ApiError, NotAcceptable, NotFound
from atoll.machinery.storage.contract import Snapshot

TEXT = "text/plain; charset=utf-8"
HEALTH = ("healthz", "livez", "readyz")
_V3_PROTOBUF = "application/com.github.proto-openapi.spec.v3"
_CACHED_FOR_AN_HOUR = (("cache-control", "public, max-age=3600"),)
_NOSNIFF = ("x-content-type-options", "nosniff")

#: A named health check: None if well, else what is wrong (never shown to clients).
Check = Callable[[], str | None]


class Fixed(msgspec.Struct, frozen=True):
    """Documents that never change while a process runs."""

    version: Object
    openid_configuration: Object
    jwks: Object


def page_not_found() -> NotFound:
    return NotFound("the server could not find the requested resource")


class Documents:
    """Answers everything that is not a resource. `checks` are run in order by the health endpoints."""

    def __init__(
        self, catalogs: Catalogs, fixed: Fixed, checks: Mapping[str, Mapping[str, Check]], registry: CollectorRegistry
    ) -> None:
        self._catalogs, self._fixed, self._checks, self._registry = catalogs, fixed, checks, registry

    def serve(self, request: Request, snapshot: Snapshot) -> None:
        """Answer by the first path segment. Raises NotFound for what is not listed."""
        if request.info.method not in {"GET", "HEAD"}:
            raise method_not_allowed()
        segments = request.info.path.strip("/").split("/")
        answers: dict[str, Callable[[Request, Snapshot, list[str]], Reply]] = {
            "": self._root, "api": self._api, "apis": self._apis, "openapi": self._openapi,
            "version": self._version, "metrics": self._metrics, "openid": self._jwks, ".well-known": self._issuer,
            **dict.fromkeys(HEALTH, self._health),
        }  # fmt: skip
        answer = answers.get(segments[0])
        if answer is None:
            raise page_not_found()
        work = request.reply_read(answer(request, snapshot, segments))
        if work is not None:
            request.exchange.spawn(work)

    def _catalog(self, request: Request, snapshot: Snapshot) -> Catalog:
        return self._catalogs.of(snapshot, request.cluster) if request.cluster else self._catalogs.base

    # --- discovery ---

    def _api(self, request: Request, snapshot: Snapshot, segments: list[str]) -> Reply:
        catalog = self._catalog(request, snapshot)
        if len(segments) == 1:
            version = discovery.aggregated_version(request.http.header("accept"))
            if version:
                return cached(request, _aggregated(catalog, version, core=True))
            address = request.http.header("host")
            return self._legacy(request, discovery.api_versions(address))
        if segments[1:] == ["v1"]:
            made = catalog.document("api/v1", lambda: discovery.resource_list(catalog, "", "v1"))
            return self._legacy(request, made)
        raise page_not_found()

    def _apis(self, request: Request, snapshot: Snapshot, segments: list[str]) -> Reply:
        catalog = self._catalog(request, snapshot)
        if len(segments) == 1:
            version = discovery.aggregated_version(request.http.header("accept"))
            if version:
                return cached(request, _aggregated(catalog, version, core=False))
            return self._legacy(request, catalog.document("apis", lambda: discovery.group_list(catalog)))
        if len(segments) == 2:
            return self._legacy(request, discovery.group(catalog, segments[1]))
        if len(segments) == 3:
            group, version = segments[1:]
            return self._legacy(request, discovery.resource_list(catalog, group, version))
        raise page_not_found()

    def _legacy(self, request: Request, made: Document | None) -> Reply:
        if made is None:
            raise page_not_found()
        form = choose(request.http.header("accept"))
        return Reply(200, made.body) if form.is_plain else document(form, decode(made.body))

    # --- OpenAPI ---

    def _openapi(self, request: Request, snapshot: Snapshot, segments: list[str]) -> Reply:
        if segments[1:2] != ["v3"]:
            raise page_not_found() if segments[1:] != ["v2"] else NotAcceptable(
                "only the following media types are accepted: none; use /openapi/v3"
            )
        accept = request.http.header("accept")
        if accept.strip().startswith(_V3_PROTOBUF) and "json" not in accept:
            raise NotAcceptable("only the following media types are accepted: application/json")
        catalog = self._catalog(request, snapshot)
        if len(segments) == 2:
            return cached(request, catalog.document("openapi", lambda: openapi.index(catalog)))
        made = openapi.group_version(catalog, "/".join(segments[2:]))
        if made is None:
            raise page_not_found()
        # A stale hash is answered with the document that is right now: a redirect would lose /clusters/.
        fresh = request.info.query.get("hash") == made.etag
        return cached(request, made, immutable=fresh)

    # --- the rest ---

    def _root(self, request: Request, snapshot: Snapshot, segments: list[str]) -> Reply:
        catalog = self._catalog(request, snapshot)
        paths = {"/api", "/api/v1", "/apis", "/openapi/v3", "/version", *(f"/{name}" for name in HEALTH)}
        for group, version in catalog.versions:
            if group:
                paths |= {f"/apis/{group}", f"/apis/{group}/{version}"}
        return document(choose(request.http.header("accept")), {"paths": sorted(paths)})

    def _version(self, request: Request, snapshot: Snapshot, segments: list[str]) -> Reply:
        if len(segments) > 1:
            raise page_not_found()
        return document(choose(request.http.header("accept")), self._fixed.version)

    def _jwks(self, request: Request, snapshot: Snapshot, segments: list[str]) -> Reply:
        if segments[1:] != ["v1", "jwks"]:
            raise page_not_found()
        return Reply(200, encode_json(self._fixed.jwks), "application/jwk-set+json", _CACHED_FOR_AN_HOUR)

    def _issuer(self, request: Request, snapshot: Snapshot, segments: list[str]) -> Reply:
        if segments[1:] != ["openid-configuration"]:
            raise page_not_found()
        return Reply(200, encode_json(self._fixed.openid_configuration), JSON, _CACHED_FOR_AN_HOUR)

    def _metrics(self, request: Request, snapshot: Snapshot, segments: list[str]) -> Reply:
        if request.info.workspace:
            raise ApiError("metrics are served for the whole shard only", code=501, reason="NotImplemented")
        return Reply(200, generate_latest(self._registry), CONTENT_TYPE_LATEST)

    def _health(self, request: Request, snapshot: Snapshot, segments: list[str]) -> Reply:
        checks = self._checks[segments[0]]
        if len(segments) == 2:
            check = checks.get(segments[1])
            if check is None:
                raise page_not_found()
            return _text(200, "ok") if check() is None else _text(500, "internal server error: reason withheld")
        if len(segments) > 2:
            raise page_not_found()
        return health(segments[0], checks, request)


def _aggregated(catalog: Catalog, version: str, *, core: bool) -> Document:
    name = f"{'api' if core else 'apis'}:{version}"
    return catalog.document(name, lambda: discovery.aggregated(catalog, version, core=core))


def health(endpoint: str, checks: Mapping[str, Check], request: Request) -> Reply:
    """The answer of a health endpoint; `exclude` skips checks, `verbose` lists them."""
    query = request.info.query
    results = {name: check() for name, check in checks.items() if name != query.get("exclude")}
    failed = [name for name, wrong in results.items() if wrong is not None]
    if not failed and "verbose" not in query:
        return _text(200, "ok")
    lines = [
        f"[-]{name} failed: reason withheld" if wrong is not None else f"[+]{name} ok"
        for name, wrong in results.items()
    ]
    lines.append(f"{endpoint} check {'failed' if failed else 'passed'}")
    return _text(500 if failed else 200, "\n".join(lines) + "\n")


def _text(status: int, text: str) -> Reply:
    return Reply(status, text.encode(), TEXT, (_NOSNIFF,))


def cached(request: Request, made: Document, *, immutable: bool = False) -> Reply:
    """A document with its ETag; 304 where the client has it."""
    quoted = f'"{made.etag}"'
    headers = [("etag", quoted), ("vary", "Accept")]
    headers.append(("cache-control", "public, immutable" if immutable else "public"))
    if request.http.header("if-none-match") == quoted:
        return Reply(304, b"", made.content_type, tuple(headers))
    return Reply(200, made.body, made.content_type, tuple(headers))
