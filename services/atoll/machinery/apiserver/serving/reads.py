"""Serving of reads: at once from the request's snapshot, or later in the exchange's task, in slices if that takes long.

`resources` passes each get, list and watch here. A small result is a reply, a long one is streamed; a conversion, or a
revision in the future, is awaited by the one task of the exchange.
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import TypeAlias

from msgspec.structs import replace

from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Call, Reply, look_up
from atoll.machinery.apiserver.call.in_slices import in_slices
from atoll.machinery.apiserver.call.negotiation import JSON, PROTOBUF
from atoll.machinery.apiserver.conversion import bare
from atoll.machinery.apiserver.filtered_rows.row_filter import Rows
from atoll.machinery.apiserver.request import Request
from atoll.machinery.apiserver.rest import list as listing
from atoll.machinery.apiserver.rest import present, scale
from atoll.machinery.apiserver.rest.get import get, wanted_revision
from atoll.machinery.apiserver.serving import list_replies
from atoll.machinery.apiserver.serving.watches import Watches, reach, rows_of
from atoll.machinery.apiserver.writing.commit import WriteService
from atoll.machinery.process.time_slicing import Stopped, try_on_loop
from atoll.machinery.storage.contract import Record, Snapshot

#: Time limit of decoding on the loop; past it, and for large objects, a read begins again in slices.
READ_S = 0.01

#: The rest of the work for a reply, awaited by the one task of its exchange.
Work: TypeAlias = Coroutine[object, object, None]


class Reads:
    """Serves gets, lists and watches of every kind."""

    def __init__(self, core: WriteService, watches: Watches) -> None:
        self._core, self._watches = core, watches

    def read(self, request: Request, call: Call, snapshot: Snapshot) -> Work | None:
        """Answer a read, or return the work to await: an exchange has one task."""
        if call.info.verb == "watch":
            self._watches.serve(request, call, snapshot)
            return None
        if call.info.query and wanted_revision(call) > snapshot.revision:
            if call.info.verb == "list":
                listing.checked(call, rows_of(call, self._core.store).list_window_s)
            return self._read_later(request, call)
        if call.kind.conversion is not None:
            return self._read_converted(request, call, snapshot)
        if call.info.verb == "list":
            return self._list(request, call)
        if call.info.subresource == "scale":
            return request.reply_read(scale.get_scale(call, snapshot))
        if call.form.is_plain and call.kind.from_stored is None:
            return request.reply_read(get(call, snapshot))
        try:
            return request.reply_read(try_on_loop(lambda pause: get(call, snapshot), READ_S))
        except Stopped:
            return request.reply_later(in_slices(lambda: self._got(call)))

    def _got(self, call: Call) -> Reply:
        with self._core.store.snapshot() as snapshot:
            return get(call, snapshot)

    def _read_converted(self, request: Request, call: Call, snapshot: Snapshot) -> Work:
        """Read a kind with conversion, in the requested version."""
        if call.info.verb == "list":
            return self._list_converted(request, call)
        record = look_up(call, snapshot, call.info.name)
        if record is None:
            raise errors.not_found(call.kind, call.info.name)
        return self._get_converted(request, call, record)

    async def _get_converted(self, request: Request, call: Call, record: Record) -> None:
        (value,) = await self._core.conversions.served(call.kind, [record.value])
        call = replace(call, kind=bare(call.kind))
        reply = scale.reply(call, value) if call.info.subresource == "scale" else present.single(call, value)
        await request.reply_packed(reply)

    async def _read_later(self, request: Request, call: Call) -> None:
        """Wait for the requested revision, then read. Raises Timeout."""
        await reach(self._core.store, wanted_revision(call))
        with self._core.store.snapshot() as snapshot:
            work = self.read(request, call, snapshot)
        if work is not None:
            await work

    # --- lists ---

    def _list(self, request: Request, call: Call) -> Work | None:
        rows = rows_of(call, self._core.store)
        if not listing.decodes(call) and "fieldSelector" not in call.info.query:
            return self._listed(request, call, *listing.start(call, rows))
        try:
            return self._listed(request, call, *try_on_loop(lambda pause: listing.start(call, rows), READ_S))
        except Stopped:
            return self._list_in_slices(request, call, rows)

    async def _list_in_slices(self, request: Request, call: Call, rows: Rows) -> None:
        if work := self._listed(request, call, *await in_slices(lambda: listing.start(call, rows))):
            await work

    def _listed(self, request: Request, call: Call, found: listing.Listing, first: bytes) -> Work | None:
        """Reply with a list of which the first slice is read."""
        if found.done:
            return request.reply_read(listing.whole(call, found, first))
        rest = listing.rest_of(call, found, first)
        if call.form.media_type == PROTOBUF or (call.form.media_type == JSON and request.is_pretty):
            return list_replies.reply_held(request, call, first, rest)
        return list_replies.stream(request, call, first, rest)

    async def _list_converted(self, request: Request, call: Call) -> None:
        """Send a list whose first megabytes are converted before the head, so that a failure is a Status."""
        convert = partial(self._core.conversions.served, call.kind)
        call = replace(call, kind=bare(call.kind))
        found, first = await listing.start_converted(call, rows_of(call, self._core.store), convert)
        await list_replies.reply_held(request, call, first, listing.rest_of(call, found, first))
