"""Serving of watches: begun in the request's snapshot, run as the exchange's task, counted and logged.

`reads` passes each watch here; `rest.watch` sends the events, `open_watches` ends those no longer allowed. Invariant: a
watch is tracked as open from its head to its end, so that no event is sent after its permission is withdrawn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import structlog
from msgspec.structs import replace

from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Call, View
from atoll.machinery.apiserver.call.negotiation import PROTOBUF
from atoll.machinery.apiserver.conversion import bare
from atoll.machinery.apiserver.filtered_rows import LabelledRows, Rows
from atoll.machinery.apiserver.request import Request
from atoll.machinery.apiserver.rest import frames, watch
from atoll.machinery.apiserver.serving.open_watches import OpenWatches, StillAllowed
from atoll.machinery.apiserver.writing.commit import WriteService
from atoll.machinery.meta.objects import encode_json
from atoll.machinery.meta.status import ApiError, Details, TooManyRequests
from atoll.machinery.storage.contract import RevisionCompacted, Snapshot, Store
from atoll.machinery.storage.options import SYSTEM_LABEL_PREFIXES

log = structlog.get_logger()

#: How long a read waits for a revision in the future.
REVISION_WAIT_S = 3.0


class Watches:
    """Serves watches of every kind. `open` tracks those being served."""

    def __init__(self, core: WriteService) -> None:
        self._core = core
        self._frames, self._unshared = frames.FrameCache(), frames.PrivateFrames()
        self.open = OpenWatches(core.store, core.catalogs)

    def serve(self, request: Request, call: Call, snapshot: Snapshot) -> None:
        """Send the head of a watch and spawn its task. Raises ApiError for invalid options, TooManyRequests."""
        scope, still = request.scope, None
        if 0 < scope.most_watches <= len(self.open.conditional(call.cluster)):
            raise TooManyRequests("Too many watches are open.", Details(retry_after_s=10))
        watched, convert = call.kind, None
        if watched.conversion is not None:
            convert = partial(self._core.conversions.served, watched)
            call = replace(call, kind=bare(watched))
        wanted = watch.checked(call)
        cache = self._frames if call.restrictions.rows is None else self._unshared
        serving = watch.Watch(call, rows_of(call, self._core.store), wanted, cache, convert)
        revision = max(wanted.options.resource_version, 0)
        # They are answers for other requests too, of which newer ones take their place while this one lasts.
        request.configuration = request.access = None
        request.start(f"{PROTOBUF};stream=watch" if call.form.media_type == PROTOBUF else call.form.media_type)
        if not scope.keeps_watches:
            serving.recheck, serving.expires_s = self.open.check_up_to, scope.expires_s
            still = StillAllowed(still_authorized(request), scope.depends_on, call.restrictions.rows is not None)
        self.open.add(call.cluster, watched, serving, still)
        wait_for = revision if revision > snapshot.revision else 0
        request.spawn(self._run(request, call, serving, wait_for))

    async def _run(self, request: Request, call: Call, serving: watch.Watch, wait_for: int) -> None:
        exchange = request.exchange
        exchange.on_drain(serving.end)
        try:
            if wait_for:
                await reach(self._core.store, wait_for)
            await serving.run(exchange)
        except ApiError as error:
            exchange.write(frames.framed(call.form, frames.ERROR, encode_json(error.status())))
            exchange.finish()
        except ConnectionResetError:
            log.debug("client left during a watch", audit_id=request.audit_id)
        except Exception as error:
            log.error("watch failed", audit_id=request.audit_id, exc_info=error)
            exchange.abort()
        finally:
            self.open.drop(call.cluster, serving)
            request.done()


def rows_of(call: Call, store: Store) -> Rows:
    """Return the rows that a call reads: the store's, or those of its virtual workspace."""
    if call.restrictions.rows is not None:
        return call.restrictions.rows
    exact = call.restrictions.labels.exact() if call.restrictions.labels is not None else {}
    label = next((pair for pair in exact.items() if pair[0].startswith(SYSTEM_LABEL_PREFIXES)), None)
    return LabelledRows(store, label) if label is not None else store


async def reach(store: Store, revision: int) -> None:
    """Wait for a revision that is not there yet. Raises Timeout, and Expired for one that a restored store gave out
    once and never will again."""
    try:
        store.tail(revision, 1)
    except RevisionCompacted as error:
        raise errors.watch_too_old(error) from None
    try:
        async with asyncio.timeout(REVISION_WAIT_S):
            await store.committed(revision - 1)
    except TimeoutError:
        with store.snapshot() as snapshot:
            raise errors.too_large_revision(revision, snapshot.revision) from None


def still_authorized(request: Request) -> Callable[[View], bool]:
    """Return the check whether an open watch is still allowed."""

    def still(view: View) -> bool:
        try:
            return request.scope.authorize(view, "watch").allowed
        except ApiError:
            return False

    return still
