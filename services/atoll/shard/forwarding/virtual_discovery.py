"""What may be done with virtual resources, as the endpoints that serve them say it.

Discovery and OpenAPI of a workspace come here when it binds kinds that are served elsewhere. A view of our own is asked
in this process, any other endpoint for its own discovery, on behalf of the caller; what it says is kept for a while.
Invariant: an endpoint that does not answer holds up no discovery for longer than TIMEOUT_S; its kinds are then shown as
readable, which is the least that one of them is.
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

TIMEOUT_S, KEEP_S, KEEP_FAILED_S, MAX_KNOWN = 3.0, 30.0, 5.0, 1024
READABLE = ("get", "list", "watch")

#: Verbs by name of the resource or its subresource (`things/status`).
Verbs = dict[str, tuple[str, ...]]


class _Resource(msgspec.Struct):
    name: str
    verbs: tuple[str, ...] = ()


class _ResourceList(msgspec.Struct):
    resources: tuple[_Resource, ...] = ()


class VirtualDiscovery:
    """`documents.VirtualVerbs`."""

    def __init__(self, store: Store, resources: VirtualResources) -> None:
        self._store, self._resources = store, resources
        self._known: LruCache[tuple[str, str], tuple[float, Verbs]] = LruCache(MAX_KNOWN)

    async def serve_with_verbs(
        self, request: Request, catalog: Catalog, serve: Callable[[Request, Snapshot], None]
    ) -> None:
        """Serve a document with the verbs that endpoints allow."""
        try:
            shown = await asyncio.gather(*(self._seen(request, kind) for kind in catalog.virtual))
            known = {(kind.group, kind.version, kind.plural): kind for kind in shown}
            kinds = [known.get(key, kind) for key, kind in catalog.kinds.items()]
            merged = Catalog(kinds, catalog.terminating, catalog.unavailable)
            request.scope = replace(request.scope, catalog=merged)
            with self._store.snapshot() as snapshot:
                serve(request, snapshot)
        except Exception as error:
            fail(request, error)

    async def _seen(self, request: Request, kind: Kind) -> Kind:
        try:
            verbs = await self._verbs(request, kind)
        except ApiError as error:
            log.info("virtual resource cannot be asked about", resource=kind.group_resource, reason=str(error))
            verbs = {}
        subresources = tuple(
            replace(sub, verbs=verbs[f"{kind.plural}/{sub.name}"])
            for sub in kind.subresources
            if f"{kind.plural}/{sub.name}" in verbs
        )
        return replace(kind, verbs=verbs.get(kind.plural, READABLE), subresources=subresources)

    async def _verbs(self, request: Request, kind: Kind) -> Verbs:
        """What the endpoint of a kind says, nothing where it does not answer. Raises ApiError."""
        path = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
        with self._store.snapshot() as snapshot:
            own = self._resources.own_catalog(request, kind, path, snapshot)
            if own is not None:
                return _of_kind(own.find(kind.group, kind.version, kind.plural))
            url = self._resources.url(kind, snapshot)
        known = self._known.get((url, path))
        if known is None or known[0] < time.monotonic():
            known = await self._asked(request, kind, url, path)
            self._known.put((url, path), known)
        return known[1]

    async def _asked(self, request: Request, kind: Kind, url: str, path: str) -> tuple[float, Verbs]:
        """What another endpoint says, and until when it counts. Raises ApiError."""
        try:
            body = await self._resources.fetch(request, kind, url, path, TIMEOUT_S)
            found = msgspec.json.decode(body, type=_ResourceList)
        except (EgressError, msgspec.MsgspecError) as error:
            log.info("endpoint of a virtual resource says nothing", resource=kind.group_resource, reason=str(error))
            return time.monotonic() + KEEP_FAILED_S, {}
        return time.monotonic() + KEEP_S, {each.name: each.verbs for each in found.resources}


def _of_kind(kind: Kind | None) -> Verbs:
    if kind is None:
        return {}
    return {kind.plural: kind.verbs, **{f"{kind.plural}/{sub.name}": sub.verbs for sub in kind.subresources}}
