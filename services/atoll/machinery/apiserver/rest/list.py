"""LIST: slices of stored bytes, all at one revision, joined and streamed.

The plain form decodes almost nothing (`list_items`). Selectors, Tables, metadata and other versions decode each item. A
list longer than one slice is streamed, each slice read in its own transaction at the client's pace, which bounds
memory. If the revision leaves the list window meanwhile, the connection is closed without the last chunk, so that a
partial list is never taken for a whole one. Slices whose items are decoded are made beside the event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import msgspec

from atoll.machinery.apiserver.call import continuation, errors
from atoll.machinery.apiserver.call.call import Call, Reply
from atoll.machinery.apiserver.call.in_slices import in_slices
from atoll.machinery.apiserver.call.options import ListOptions, list_options
from atoll.machinery.apiserver.catalog import tables
from atoll.machinery.apiserver.catalog.selection import Selection, selection
from atoll.machinery.apiserver.filtered_rows.row_filter import Rows
from atoll.machinery.apiserver.rest import list_items
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.meta.partial import ObjectName, Partial
from atoll.machinery.meta.status import Expired
from atoll.machinery.storage.contract import Page, Position, RevisionCompacted, Scope

SLICE_BYTES = 1 << 20


class Request(msgspec.Struct, frozen=True):
    """A validated list request."""

    scope: Scope
    options: ListOptions
    chosen: Selection
    at: int
    moment: int
    after: Position | None
    mark: bytes
    #: The token's count of items after `after`; -1 if unknown.
    remaining: int = -1


#: Converts stored objects to the request's version. Raises ApiError.
Convert = Callable[[Sequence[bytes]], Awaitable[list[bytes]]]


class Listing:
    """A list in progress: returns slices of stored records, and its metadata after the last."""

    def __init__(self, store: Rows, request: Request, convert: Convert | None = None) -> None:
        self._store, self._request, self._convert = store, request, convert
        self._after, self._left = request.after, request.options.limit
        self.revision, self.done = request.at, False
        self._remaining, self._expected = -1, request.remaining
        self._last_sent = Position("", "", "")

    def slice(self) -> list[bytes]:
        """Return the next records; the last slice sets `done`. Raises RevisionCompacted."""
        return self._taken(self._read())

    async def next_slice(self) -> list[bytes]:
        """Return the next records like `slice`, converted if needed. Raises RevisionCompacted, ApiError."""
        page = self._read()
        if self._convert is not None:
            page = msgspec.structs.replace(page, values=await self._convert(page.values))
        return await in_slices(lambda: self._taken(page)) if self._request.chosen.reads_object else self._taken(page)

    def _read(self) -> Page:
        limit = self._left if self._request.chosen.is_everything else 0
        return self._store.page(
            self._request.scope, at=self.revision, after=self._after, limit=limit, size_bytes=SLICE_BYTES
        )

    def _taken(self, page: Page) -> list[bytes]:
        self.revision = page.revision
        values = page.values if self._request.chosen.is_everything else self._selected(page)
        if self._request.chosen.is_everything:
            self._after = page.after
            # A past revision cannot be counted, but the first page was.
            self._expected -= len(values) if self._expected >= 0 else 0
            self._remaining = self._expected = page.remaining if page.remaining >= 0 else self._expected
            self._left -= len(values) if self._left else 0
        self.done = self._after is None or (self._request.options.limit > 0 and self._left <= 0)
        return values

    def _selected(self, page: Page) -> list[bytes]:
        chosen = self._request.chosen
        values: list[bytes] = []
        self._after = page.after
        for value in page.values:
            if self._request.options.limit and self._left <= 0:
                # There is another selected item past the limit: the token continues after the last one sent.
                if chosen.matches(value):
                    self._after = self._last_sent
                    return values
            elif chosen.matches(value):
                values.append(value)
                self._left -= 1
                self._last_sent = _position(value)
        if self._request.options.limit and self._left <= 0 and page.after is not None:
            self._after = self._last_sent
        return values

    def metadata(self) -> Object:
        """Return `metadata` of the list: resourceVersion, continue, remainingItemCount. Valid once `done`."""
        found: Object = {"resourceVersion": str(self.revision)}
        if self._after is not None:
            moment = self._request.moment or int(time.time())
            found["continue"] = continuation.issue(
                self.revision, moment, self._request.mark, self._after, self._remaining
            )
            if self._remaining > 0:
                found["remainingItemCount"] = self._remaining
        return found


class _Metadata(ObjectName, frozen=True, gc=False):
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


_placed = msgspec.json.Decoder(Partial[_Metadata])


def _position(value: bytes) -> Position:
    where = _placed.decode(value).metadata
    return Position(where.annotations.get(wellknown.CLUSTER, ""), where.namespace, where.name)


def checked(call: Call, window_s: int) -> Request:
    """Validate a list's options; continue tokens expire after `window_s`. Raises BadRequest, Invalid, Expired."""
    options = list_options(call.info.query, watch=False)
    chosen = selection(call.kind, options, call.restrictions.labels)
    mark = continuation.fingerprint(call.scope, chosen.canonical)
    at, moment, after, remaining = 0, 0, None, -1
    if options.continue_token:
        token = continuation.read(options.continue_token, mark, window_s)
        at, moment, after, remaining = token.revision, token.moment, token.after, token.remaining
    elif options.resource_version > 0 and (options.match == "Exact" or (options.limit and not options.match)):
        at = options.resource_version
    return Request(call.scope, options, chosen, at, moment, after, mark, remaining)


def decodes(call: Call) -> bool:
    """Whether items are decoded for their form or version."""
    return bool(call.form.transform) or call.kind.from_stored is not None


def head(call: Call) -> bytes:
    """Return the bytes before the items; keys are sorted, so the metadata follows the items."""
    form = call.form
    if form.transform == "Table":
        lead = {"apiVersion": f"meta.k8s.io/{form.version}", "columnDefinitions": tables.column_definitions(call.kind)}
        return encode_json({**lead, "kind": "Table"})[:-1] + b',"rows":['
    if form.transform:
        return b'{"apiVersion":"meta.k8s.io/%b","items":[' % form.version.encode()
    return b'{"apiVersion":%b,"items":[' % encode_json(call.kind.api_version)


def foot(call: Call, metadata: Object) -> bytes:
    """Return the bytes after the items."""
    form = call.form
    if form.transform == "Table":
        return b'],"metadata":' + encode_json(metadata) + b"}\n"
    kind = form.transform or call.kind.list_kind_name
    return b'],"kind":%b,"metadata":%b}\n' % (encode_json(kind), encode_json(metadata))


def start(call: Call, store: Rows) -> tuple[Listing, bytes]:
    """Read the first slice; return the listing and the bytes so far. Raises Expired for a compacted revision."""
    request = checked(call, store.list_window_s)
    listing, encode = Listing(store, request), list_items.encoder(call)
    try:
        values = listing.slice()
    except RevisionCompacted as error:
        raise expired(request) from error
    return listing, encode(values, head(call))


async def start_converted(call: Call, store: Rows, convert: Convert) -> tuple[Listing, bytes]:
    """`start` for a kind with conversion; the call's kind is the bare one. Raises Expired, ApiError."""
    request = checked(call, store.list_window_s)
    listing, encode = Listing(store, request, convert), list_items.encoder(call)
    try:
        values = await listing.next_slice()
    except RevisionCompacted as error:
        raise expired(request) from error
    return listing, await _encoded(call, encode, values, head(call))


async def _encoded(call: Call, encode: list_items.Encoder, values: Sequence[bytes], lead: bytes) -> bytes:
    return await in_slices(lambda: encode(values, lead)) if decodes(call) else encode(values, lead)


def expired(request: Request) -> Expired:
    """Return the 410 for a compacted revision; after a continue token, with the token for an inconsistent list."""
    if request.options.continue_token:
        return continuation.expired(
            continuation.Continuation("", 0, 0, request.mark, request.after or Position("", "", ""))
        )
    return errors.list_too_old()


def whole(call: Call, listing: Listing, first: bytes) -> Reply:
    """Return the reply of a list of one slice."""
    return Reply(200, first + foot(call, listing.metadata()), call.form.media_type)


async def rest_of(call: Call, listing: Listing, first: bytes) -> AsyncIterator[bytes]:
    """Yield the bytes after the first slice, slice by slice. Raises RevisionCompacted and ApiError between slices."""
    empty, encode = first.endswith(b"["), list_items.encoder(call)
    while not listing.done:
        values = await listing.next_slice()
        if values:
            yield await _encoded(call, encode, values, b"" if empty else b",")
            empty = False
        else:
            # A view may hide all rows of many slices.
            await asyncio.sleep(0)
    yield foot(call, listing.metadata())
