"""Verbs of virtual resources in discovery and OpenAPI, taken from the endpoints that serve them.

The document routes call it for a workspace that binds virtual kinds. The verbs of the shard's own virtual workspaces
are read in this process; any other endpoint is queried for its discovery document on behalf of the caller, and the
answer is cached for KEEP_S. Invariant: an endpoint that does not answer delays discovery by TIMEOUT_S at most; its
kinds are then listed with the verbs READABLE.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec
import structlog
from msgspec.structs import replace

from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.apiserver.request import Request, fail
from atoll.machinery.egress import EgressError
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.status import ApiError
from atoll.machinery.storage.contract import Snapshot, Store
from atoll.shard.forwarding.virtual_resources import VirtualResources

log = structlog.get_logger()

TIMEOUT_S, KEEP_S, KEEP_FAILED_S, MAX_CACHED = 3.0, 30.0, 5.0, 1024
READABLE = ("get", "list", "watch")

#: Verbs by name of the resource or its subresource (`things/status`).
Verbs = dict[str, tuple[str, ...]]


class _Resource(msgspec.Struct):
    name: str
    verbs: tuple[str, ...] = ()


class _ResourceList(msgspec.Struct):
    resources: tuple[_Resource, ...] = ()


class VirtualDiscovery:
    """Implements `documents.VirtualVerbs`."""

    def __init__(self, store: Store, resources: VirtualResources) -> None:
        self._store, self._resources = store, resources
        self._cache: LruCache[tuple[str, str], tuple[float, Verbs]] = LruCache(MAX_CACHED)

    async def serve_with_verbs(
        self, request: Request, catalog: Catalog, serve: Callable[[Request, Snapshot], None]
    ) -> None:
        """Serve a document with the verbs of the endpoints."""
        try:
            resolved = await asyncio.gather(*(self._with_verbs(request, kind) for kind in catalog.virtual))
            virtual = {(kind.group, kind.version, kind.plural): kind for kind in resolved}
            kinds = [virtual.get(key, kind) for key, kind in catalog.kinds.items()]
            merged = Catalog(kinds, catalog.terminating, catalog.unavailable)
            request.scope = replace(request.scope, catalog=merged)
            with self._store.snapshot() as snapshot:
                serve(request, snapshot)
        except Exception as error:
            fail(request, error)

    async def _with_verbs(self, request: Request, kind: Kind) -> Kind:
        try:
            verbs = await self._verbs(request, kind)
        except ApiError as error:
            log.info("virtual resource discovery refused", resource=kind.group_resource, reason=str(error))
            verbs = {}
        subresources = tuple(
            replace(sub, verbs=verbs[f"{kind.plural}/{sub.name}"])
            for sub in kind.subresources
            if f"{kind.plural}/{sub.name}" in verbs
        )
        return replace(kind, verbs=verbs.get(kind.plural, READABLE), subresources=subresources)

    async def _verbs(self, request: Request, kind: Kind) -> Verbs:
        """Return the verbs of a kind at its endpoint; empty if it does not answer. Raises ApiError."""
        path = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
        with self._store.snapshot() as snapshot:
            own = self._resources.own_catalog(request, kind, path, snapshot)
            if own is not None:
                return _of_kind(own.find(kind.group, kind.version, kind.plural))
            url = self._resources.url(kind, snapshot)
        cached = self._cache.get((url, path))
        if cached is None or cached[0] < time.monotonic():
            cached = await self._fetch(request, kind, url, path)
            self._cache.put((url, path), cached)
        return cached[1]

    async def _fetch(self, request: Request, kind: Kind, url: str, path: str) -> tuple[float, Verbs]:
        """Return the expiry time and the verbs of another endpoint. Raises ApiError."""
        try:
            body = await self._resources.fetch(request, kind, url, path, TIMEOUT_S)
            found = msgspec.json.decode(body, type=_ResourceList)
        except (EgressError, msgspec.MsgspecError) as error:
            log.info("virtual resource discovery failed", resource=kind.group_resource, reason=str(error))
            return time.monotonic() + KEEP_FAILED_S, {}
        return time.monotonic() + KEEP_S, {each.name: each.verbs for each in found.resources}


def _of_kind(kind: Kind | None) -> Verbs:
    if kind is None:
        return {}
    return {kind.plural: kind.verbs, **{f"{kind.plural}/{sub.name}": sub.verbs for sub in kind.subresources}}
