"""`/openapi/v3` and `/openapi/v2` over HTTP: negotiation, hashes and caching headers.

`serving.documents` passes every request below `/openapi` here. Cached documents are sent at once; others are built in
the exchange's task. Headers are kube-openapi's, except that the redirect from a stale hash is relative, because a
client's base URL may be below `/clusters/`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from email.utils import formatdate, parsedate_to_datetime

from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Reply
from atoll.machinery.apiserver.call.negotiation import clauses
from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.apiserver.openapi import forms, publisher
from atoll.machinery.apiserver.openapi.forms import Form
from atoll.machinery.apiserver.openapi.publisher import OpenApiPublisher, PublishedDocument
from atoll.machinery.apiserver.request import Request, fail
from atoll.machinery.meta.status import NotAcceptable
from atoll.machinery.wire.compress import MIN_BYTES, PACKED

_YEAR_S = 365 * 24 * 3600
#: For clients without gzip, documents up to this size are decompressed on the loop; larger ones in a thread.
_SMALL_BYTES = 512 * 1024

_Make = Callable[[], Coroutine[object, object, PublishedDocument]]


class OpenApi:
    """Serves what is below `/openapi`."""

    def __init__(self) -> None:
        self._publisher = OpenApiPublisher()

    def serve(self, request: Request, catalog: Catalog, segments: list[str]) -> None:
        """Answer, at once or as a task. Raises NotFound and NotAcceptable."""
        if segments == ["openapi", "v3"]:
            kept = self._publisher.kept_index(catalog)
            self._answer(request, kept, lambda: self._publisher.index(catalog))
            return
        if segments[:2] == ["openapi", "v3"]:
            wanted = publisher.of_key(catalog, "/".join(segments[2:]))
        else:
            wanted = publisher.of_everything(catalog) if segments == ["openapi", "v2"] else None
        if wanted is None:
            raise errors.not_served()
        found, form = wanted, form_of(request.http.header("accept"), v3=segments[1] == "v3")
        kept = self._publisher.kept(found, form)
        self._answer(request, kept, lambda: self._publisher.document(found, form))

    def _answer(self, request: Request, kept: PublishedDocument | None, make: _Make) -> None:
        if kept is not None and (is_packed(request, kept) or kept.size_bytes <= _SMALL_BYTES):
            request.reply(reply(request, kept))
        else:
            request.spawn(self._later(request, make))

    async def _later(self, request: Request, make: _Make) -> None:
        try:
            made = await make()
            if is_packed(request, made) or made.size_bytes <= _SMALL_BYTES:
                request.reply(reply(request, made))
            else:
                request.reply(await asyncio.to_thread(reply, request, made))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            fail(request, error)


def form_of(accept: str, *, v3: bool) -> Form:
    """Return the form for an Accept header; JSON without one. Raises NotAcceptable."""
    for clause in clauses(accept or "*/*"):
        form = forms.accepted(clause.media_type, v3=v3) if clause.quality > 0 else None
        if form is not None:
            return form
    binary = forms.V3_PROTOBUF if v3 else forms.V2_PROTOBUF
    raise NotAcceptable(f"only the following media types are accepted: {forms.JSON}, {binary}")


def is_packed(request: Request, made: PublishedDocument) -> bool:
    """Whether a document is sent compressed, as cached."""
    return made.size_bytes > MIN_BYTES and request.preferences.gzip


def reply(request: Request, made: PublishedDocument) -> Reply:
    """Return the document, 304 if the client has it, or 301 for another hash."""
    wanted = request.info.query.get("hash", "")
    if wanted and wanted != made.etag:
        # Not cacheable, because the hash may become current again.
        fresh = f"{request.info.path.rstrip('/').rpartition('/')[2]}?hash={made.etag}"
        return Reply(301, b"", made.content_type, (("location", fresh),))
    quoted = f'"{made.etag}"'
    modified = formatdate(made.modified_s, usegmt=True)
    headers: list[tuple[str, str]] = [("etag", quoted), ("vary", "Accept"), ("last-modified", modified)]
    if wanted:
        expires = formatdate(time.time() + _YEAR_S, usegmt=True)
        headers += [("cache-control", "public, immutable"), ("expires", expires)]
    if _has_it(request, quoted, made.modified_s):
        return Reply(304, b"", made.content_type, tuple(headers))
    if is_packed(request, made):
        return Reply(200, made.packed, made.content_type, (*headers, *PACKED), verbatim=True)
    return Reply(200, made.body(), made.content_type, tuple(headers), verbatim=True)


def _has_it(request: Request, quoted: str, modified_s: int) -> bool:
    tags = request.http.header("if-none-match")
    if tags:
        return tags.strip() == "*" or quoted in {tag.strip().removeprefix("W/") for tag in tags.split(",")}
    try:
        since = parsedate_to_datetime(request.http.header("if-modified-since"))
    except ValueError:
        return False
    return since.timestamp() >= modified_s
