"""Build OpenAPI documents, cache them, and share them among workspaces with the same kinds.

`openapi.serving` requests a document of a catalogue. The cache is keyed by the content of the kinds, so that a second
workspace with the same APIs costs neither memory nor a build; it is bounded in bytes and holds compressed documents. A
document is built on the first request, once for concurrent requests, in slices: part by part, with other requests
between them, and large parts in a thread. Invariant: a document has the same hash in every form: of the JSON where it
has built-in kinds, else of its kinds and of this code, so that the index needs no document of a definition.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
import zlib
from collections.abc import Callable, Coroutine
from functools import cache
from pathlib import Path

import msgspec

from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.apiserver.openapi import forms, parts, routes
from atoll.machinery.apiserver.openapi.forms import Form
from atoll.machinery.apiserver.openapi.parts import Part, Parts
from atoll.machinery.apiserver.openapi.routes import OperationRoute, key_of
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.objects import encode_json

#: Bound of the cache, in bytes before compression; compressed documents take a tenth.
MAX_BYTES = 256 * 1024 * 1024
#: Approximate time for which building a document may block other requests.
SLICE_S = 0.004
#: Definitions of more bytes are built in a thread.
LARGE_BYTES = 64 * 1024
_LEVEL, _GZIP_WINDOW = 1, 31

_Key = tuple[str, object]


class PublishedDocument(msgspec.Struct, frozen=True):
    """A document: its gzip form, its uncompressed size, its ETag and modification time."""

    packed: bytes
    size_bytes: int
    etag: str
    content_type: str
    modified_s: int

    def body(self) -> bytes:
        """Return the uncompressed document."""
        return zlib.decompress(self.packed, _GZIP_WINDOW)


class RequestedDocument(msgspec.Struct, frozen=True):
    """The content of a document: kinds, and operations without a kind. `mark` is a hash of both.

    `etag` is known before the document is built if all kinds are defined by users; otherwise it is empty.
    """

    mark: object
    kinds: tuple[Kind, ...]
    routes: tuple[OperationRoute, ...]
    etag: str = ""


def of_key(catalog: Catalog, key: str) -> RequestedDocument | None:
    """Return the content of the v3 document of an index key; None for an unknown key."""
    prefix, *rest = key.split("/")
    group, version = ("", rest[0]) if prefix == "api" and len(rest) == 1 else (*rest, "", "")[:2]
    if prefix in {"api", "apis"} and version:
        return _of_version(catalog, group, version) if key == key_of(group, version) else None
    if prefix == "apis" and group and not any(known == group for known, _ in catalog.versions):
        return None
    route = routes.of_root(key)
    return None if route is None else RequestedDocument(key, (), (route,))


def _of_version(catalog: Catalog, group: str, version: str) -> RequestedDocument | None:
    kinds = catalog.by_version.get((group, version))
    if kinds is None:
        return None
    mark = catalog.version_marks[group, version]
    if any(kind.builtin for kind in kinds):
        return RequestedDocument(mark, kinds, (routes.of_version(group, version),))
    return RequestedDocument(mark, kinds, (), hashlib.sha512(_code_digest() + mark).hexdigest().upper())


@cache
def _code_digest() -> bytes:
    """Return a hash of the code that builds documents: another release may build others of the same kinds."""
    machinery = Path(__file__).parents[2]
    folders = (Path(__file__).parent, machinery / "kinds", machinery / "schema")
    sources = sorted(path for folder in folders for path in folder.rglob("*.py"))
    return hashlib.sha512(b"".join(path.read_bytes() for path in sources)).digest()


def of_everything(catalog: Catalog) -> RequestedDocument:
    """Return the content of the v2 document: all kinds and operations."""
    fixed = [routes.of_root(key) for key in (*routes.ROOTS, *_groups(catalog))]
    versions = [
        routes.of_version(*each) for each, kinds in catalog.by_version.items() if any(kind.builtin for kind in kinds)
    ]
    return RequestedDocument(catalog.mark, tuple(catalog.kinds.values()), (*filter(None, fixed), *versions))


def _groups(catalog: Catalog) -> list[str]:
    return sorted({f"apis/{group}" for group, _ in catalog.versions if group})


class OpenApiPublisher:
    """Builds and caches documents. One per server; belongs to its event loop."""

    def __init__(self) -> None:
        self._kept: LruCache[_Key, PublishedDocument] = LruCache(MAX_BYTES, lambda made: made.size_bytes)
        self._parts = Parts()
        self._making: dict[_Key, asyncio.Task[PublishedDocument]] = {}

    def kept(self, wanted: RequestedDocument, form: Form) -> PublishedDocument | None:
        """Return a document if it is cached."""
        return self._kept.get((form.name, wanted.mark))

    def kept_index(self, catalog: Catalog) -> PublishedDocument | None:
        """Return the index if it is cached."""
        return self._kept.get(("index", catalog.mark))

    async def document(self, wanted: RequestedDocument, form: Form) -> PublishedDocument:
        """Return a document, built if needed."""
        return await self._once((form.name, wanted.mark), lambda: self._document(wanted, form))

    async def index(self, catalog: Catalog) -> PublishedDocument:
        """Return `/openapi/v3`: the path of each document, with the hash of its content."""
        return await self._once(("index", catalog.mark), lambda: self._index(catalog))

    async def _once(
        self, key: _Key, make: Callable[[], Coroutine[object, object, PublishedDocument]]
    ) -> PublishedDocument:
        """Return the cached document, or await its one build, which the cancellation of a caller does not stop."""
        found = self._kept.get(key)
        if found is not None:
            return found
        task = self._making.get(key)
        if task is None:
            task = self._making[key] = asyncio.create_task(make())
            task.add_done_callback(lambda done: self._done(key, done))
        return await asyncio.shield(task)

    def _done(self, key: _Key, task: asyncio.Task[PublishedDocument]) -> None:
        del self._making[key]
        if not task.cancelled() and task.exception() is None:
            self._kept.put(key, task.result())

    async def _index(self, catalog: Catalog) -> PublishedDocument:
        keys = [*routes.ROOTS, *_groups(catalog), *(key_of(*each) for each in catalog.versions)]
        paths = {}
        for key in sorted(keys):
            wanted = of_key(catalog, key)
            assert wanted is not None, "a key of this catalogue"
            etag = wanted.etag or (await self.document(wanted, forms.V3)).etag
            paths[key] = {"serverRelativeURL": f"/openapi/v3/{key}?hash={etag}"}
        return _publish(encode_json({"paths": paths}) + b"\n", forms.JSON, "")

    async def _document(self, wanted: RequestedDocument, form: Form) -> PublishedDocument:
        etag = wanted.etag
        if not etag and form not in {forms.V3, forms.V2}:
            etag = (await self.document(wanted, forms.V3 if form.is_v3 else forms.V2)).etag
        made = [parts.of_roots(wanted.routes, form)]
        began = time.perf_counter()
        for kind in wanted.kinds:
            made.append(await self._part(kind, form))
            if time.perf_counter() - began > SLICE_S:
                await asyncio.sleep(0)
                began = time.perf_counter()
        return await asyncio.to_thread(_assemble, made, form, etag)

    async def _part(self, kind: Kind, form: Form) -> Part:
        part = self._parts.get(kind, form)
        if part is None:
            is_large = kind.schema is not None and kind.schema.size_bytes > LARGE_BYTES
            part = await asyncio.to_thread(parts.make, kind, form) if is_large else parts.make(kind, form)
            self._parts.keep(kind, form, part)
        return part


def _assemble(made: list[Part], form: Form, etag: str) -> PublishedDocument:
    schemas, paths = parts.components((need for part in made for need in part.needs), form), {}
    for part in made:
        schemas.update(part.schemas)
        paths.update(part.paths)
    return _publish(form.join(paths, schemas), form.content_type, etag)


def _publish(body: bytes, content_type: str, etag: str) -> PublishedDocument:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
    packed = packer.compress(body) + packer.flush()
    etag = etag or hashlib.sha512(body).hexdigest().upper()
    return PublishedDocument(packed, len(body), etag, content_type, int(time.time()))
