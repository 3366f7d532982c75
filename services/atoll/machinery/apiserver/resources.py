"""The API of a cluster: from an authorized resource request to its verb.

The pipeline calls `serve`. Reads are answered from the request's snapshot at once; what must wait (a revision to
come, a write, a stream) goes on as a task of the exchange.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from itertools import islice

import structlog
from msgspec.structs import replace

from atoll.machinery.apiserver import errors
from atoll.machinery.apiserver.authorization.attributes import attributes_of
from atoll.machinery.apiserver.call import Call, Reply, View
from atoll.machinery.apiserver.core import Core
from atoll.machinery.apiserver.negotiation import JSON, choose
from atoll.machinery.apiserver.openwatches import OpenWatches
from atoll.machinery.apiserver.options import DeleteOptions, WriteOptions
from atoll.machinery.apiserver.pipeline import Authorization, Request, fail
from atoll.machinery.apiserver.rest import deletecollection, frames, present, scale, watch
from atoll.machinery.apiserver.rest import list as listing
from atoll.machinery.apiserver.rest.delete import plan_delete, read_options
from atoll.machinery.apiserver.rest.get import get, wanted_revision
from atoll.machinery.apiserver.reviews import is_deep
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import times
from atoll.machinery.meta.objects import encode_json
from atoll.machinery.meta.status import ApiError, Details, MethodNotAllowed, NotFound, TooManyRequests
from atoll.machinery.storage.contract import Compacted, Snapshot
from atoll.machinery.wire.compress import PACKED, Packer

log = structlog.get_logger()

REVISION_WAIT_S = 3.0
#: Requests that change something, under way at a time; beyond it 429 with Retry-After.
MAX_MUTATING = 400
#: Single deletes of one deletecollection under way; they share commits.
DELETES_AT_A_TIME = 32
_MUTATING = frozenset({"create", "update", "patch", "delete"})
_READS = frozenset({"get", "list", "watch"})
_ON_ONE = frozenset({"update", "patch"})

#: What is left to do for an answer, awaited by the one task of its exchange.
Work = Coroutine[object, object, None]

#: Answers a create that stores nothing, or a subresource of its own (reviews, token requests).
Special = Callable[[Call, Snapshot], Reply | Awaitable[Reply]]


class Resources:
    """Serves every kind. `specials` maps (group, plural, subresource) to what is not an ordinary verb."""

    def __init__(
        self, core: Core, authorization: Authorization, specials: Mapping[tuple[str, str, str], Special]
    ) -> None:
        self._core, self._authorization, self._specials = core, authorization, specials
        self._frames = frames.FrameCache()
        self._mutating = 0
        self.watches = OpenWatches(core.store, core.catalogs)

    def serve(self, request: Request, snapshot: Snapshot) -> None:
        """Answer an authorized resource request."""
        call = self._call(request, self._kind(request, snapshot), snapshot)
        self._check_verb(call)
        if call.kind.deprecation:
            call.warnings.append(call.kind.deprecation)
        special = self._specials.get((call.kind.group, call.kind.plural, call.info.subresource))
        if special is not None and call.info.verb == "create":
            self._special(request, call, special, snapshot)
        elif self._mutating >= MAX_MUTATING and call.info.verb not in _READS:
            text = "Too many requests, please try again later."
            raise TooManyRequests(text, Details(retry_after_s=1))
        elif call.info.verb in _MUTATING:
            request.exchange.spawn(self._guarded(request, self._write(request, call)))
        elif call.info.verb == "deletecollection":
            request.exchange.spawn(self._guarded(request, self._delete_collection(request, call)))
        else:
            work = self._read(request, call, snapshot)
            if work is not None:
                request.exchange.spawn(self._guarded(request, work))

    # --- what is asked for ---

    def _kind(self, request: Request, snapshot: Snapshot) -> Kind:
        info = request.info
        wanted = info.group, info.version, info.resource
        if info.is_wildcard:
            return self._wildcard_kind(request, snapshot)
        kind = self._core.catalogs.of(snapshot, request.cluster).find(*wanted)
        if kind is None or (info.identity is not None and info.identity != kind.identity):
            raise not_served()
        return kind

    def _wildcard_kind(self, request: Request, snapshot: Snapshot) -> Kind:
        info, catalogs = request.info, self._core.catalogs
        if info.verb not in {"list", "watch"}:
            raise MethodNotAllowed(f"{info.verb} is not supported in the `*` logical cluster")
        wanted = info.group, info.version, info.resource
        if info.identity == "":
            raise ApiError(f"invalid resource {info.resource}:: missing identity", code=500, reason="InternalError")
        kind = catalogs.base.find(*wanted)
        if kind is None and info.identity:
            kind = catalogs.by_identity(snapshot, wanted, info.identity)
        elif kind is None and choose(request.http.header("accept")).transform.startswith("PartialObjectMetadata"):
            kind = catalogs.defined_anywhere(snapshot, wanted)
        if kind is None:
            raise not_served()
        return kind

    def _call(self, request: Request, kind: Kind, snapshot: Snapshot) -> Call:
        http, info = request.http, request.info
        self._check_place(request, kind)

        def may(verb: str) -> bool:
            with self._core.store.snapshot() as view:
                attributes = attributes_of(info, request.user, request.cluster)
                return self._authorization.authorize(view, replace(attributes, verb=verb)).allowed

        return Call(
            info=info, user=request.user, cluster=request.cluster, kind=kind,
            form=choose(http.header("accept"), transforms="get" in kind.verbs), body=http.body,
            content_type=http.header("content-type"), user_agent=http.header("user-agent"),
            now=times.now(), warnings=request.warnings, may=may, deep=is_deep(http, request.user),
        )  # fmt: skip

    def _check_place(self, request: Request, kind: Kind) -> None:
        """Namespaced kinds are written inside a namespace, cluster-scoped ones outside of any."""
        info = request.info
        namespaces = not kind.group and kind.plural == "namespaces"
        if not kind.namespaced and info.namespace and not namespaces:
            raise not_served()
        if kind.namespaced and not info.namespace and info.verb not in {"list", "watch", "deletecollection"}:
            if kind.builtin and info.verb == "create":
                raise method_not_allowed()
            raise not_served()
        if kind.namespaced and not info.namespace and info.verb == "deletecollection":
            raise method_not_allowed()

    def _check_verb(self, call: Call) -> None:
        kind, verb = call.kind, call.info.verb
        one = bool(call.info.name)
        if (verb in _ON_ONE and not one) or (verb == "create" and one and not call.info.subresource):
            raise method_not_allowed()
        if not call.info.subresource:
            allowed = kind.verbs
        else:
            sub = kind.subresource(call.info.subresource)
            if sub is None:
                raise not_served()
            allowed = sub.verbs
        if verb not in allowed:
            raise method_not_allowed()

    # --- answers ---

    def _special(self, request: Request, call: Call, special: Special, snapshot: Snapshot) -> None:
        answer = special(call, snapshot)
        if isinstance(answer, Reply):
            request.reply(answer)
        else:
            request.exchange.spawn(self._guarded(request, self._later(request, answer)))

    async def _later(self, request: Request, answer: Awaitable[Reply]) -> None:
        await request.reply_packed(await answer)

    async def _guarded(self, request: Request, work: Awaitable[None]) -> None:
        mutating = request.info.verb not in _READS
        self._mutating += mutating
        try:
            if mutating:
                await request.observer.room()
            await work
        except asyncio.CancelledError:
            raise
        except Exception as error:
            fail(request, error)
        finally:
            self._mutating -= mutating

    async def _write(self, request: Request, call: Call) -> None:
        def recheck(view: View) -> None:
            attributes = attributes_of(request.info, request.user, request.cluster)
            decision = self._authorization.authorize(view, attributes)  # type: ignore[arg-type]
            if not decision.allowed:
                raise errors.forbidden(call.kind, call.info.name, "access was withdrawn")

        request.reply(await self._core.commit(call, self._core.planner(call), recheck))

    def _read(self, request: Request, call: Call, snapshot: Snapshot) -> Work | None:
        """Answer a read, or give what has to be awaited for it: there is one task an exchange."""
        if call.info.verb == "watch":
            self._watch(request, call, snapshot)
            return None
        if call.info.query and wanted_revision(call) > snapshot.revision:
            return self._read_later(request, call)
        if call.info.verb == "list":
            return self._list(request, call)
        if call.info.subresource == "scale":
            return request.reply_read(scale.get_scale(call, snapshot))
        return request.reply_read(get(call, snapshot))

    async def _read_later(self, request: Request, call: Call) -> None:
        """A read of a state that is not there yet: wait a little for it. Raises Timeout."""
        await self._reach(wanted_revision(call))
        with self._core.store.snapshot() as snapshot:
            work = self._read(request, call, snapshot)
        if work is not None:
            await work

    async def _reach(self, revision: int) -> None:
        try:
            async with asyncio.timeout(REVISION_WAIT_S):
                await self._core.store.committed(revision - 1)
        except TimeoutError:
            with self._core.store.snapshot() as snapshot:
                raise errors.too_large_revision(revision, snapshot.revision) from None

    # --- lists ---

    def _list(self, request: Request, call: Call) -> Work | None:
        found, first = listing.start(call, self._core.store)
        if found.done:
            return request.reply_read(listing.whole(call, found, first))
        if call.form.media_type != JSON or request.is_pretty:
            return self._later(request, listing.collected(call, found, first))
        return self._stream_list(request, call, found, first)

    async def _stream_list(self, request: Request, call: Call, found: listing.Listing, first: bytes) -> None:
        exchange, packer = request.exchange, Packer() if request.wants_gzip else None
        request.start(JSON, PACKED if packer is not None else ())
        try:
            exchange.write(await packer.pack(first) if packer is not None else first)
            for part in listing.rest_of(call, found, first):
                await exchange.drain()
                exchange.write(await packer.pack(part) if packer is not None else part)
            if packer is not None:
                exchange.write(packer.finish())
        except Compacted:
            # Half a list must not be taken for a whole one.
            exchange.abort()
        except ConnectionResetError:
            log.debug("client left during a list", audit_id=request.audit_id)
        else:
            exchange.finish()
        request.done()

    async def _delete_collection(self, request: Request, call: Call) -> None:
        options = read_options(call)
        chosen = deletecollection.selected(call, self._core.store)
        deleted: list[bytes] = []
        while some := list(islice(chosen, DELETES_AT_A_TIME)):
            gone = await asyncio.gather(*(self._delete_one(call, item, options) for item in some))
            deleted.extend(each for each in gone if each is not None)
        with self._core.store.snapshot() as snapshot:
            revision = snapshot.revision
        body = b'{"apiVersion":%b,"items":[%b],"kind":%b,"metadata":{"resourceVersion":"%d"}}\n' % (
            encode_json(call.kind.api_version), b",".join(deleted), encode_json(call.kind.list_kind_name), revision,
        )  # fmt: skip
        request.reply(Reply(200, body))

    async def _delete_one(self, call: Call, item: tuple[str, str, bytes], options: DeleteOptions) -> bytes | None:
        """Delete one object of a collection; None if somebody else did."""
        namespace, name, value = item
        one = _single(call, namespace, name)
        try:
            await self._core.commit(
                one, lambda view: plan_delete(self._core.writing(one, view, WriteOptions()), name, options)
            )
        except NotFound:
            return None
        return present.in_version(call.kind, value)

    # --- watches ---

    def _watch(self, request: Request, call: Call, snapshot: Snapshot) -> None:
        wanted = watch.checked(call)
        revision = max(wanted.options.resource_version, 0)
        request.start(JSON)
        request.exchange.spawn(self._serve_watch(request, call, wanted, revision > snapshot.revision))

    async def _serve_watch(self, request: Request, call: Call, wanted: watch.WatchRequest, future: bool) -> None:
        exchange = request.exchange
        serving = watch.Watch(call, self._core.store, wanted, self._frames)
        self.watches.add(call.cluster, call.kind, serving)
        exchange.on_drain(serving.end)
        try:
            if future:
                await self._reach(wanted.options.resource_version)
            await serving.run(exchange)
        except ApiError as error:
            exchange.write(frames.line(frames.ERROR, encode_json(error.status())))
            exchange.finish()
        except ConnectionResetError:
            log.debug("watch left", audit_id=request.audit_id)
        except Exception as error:
            log.error("watch failed", audit_id=request.audit_id, exc_info=error)
            exchange.abort()
        finally:
            self.watches.drop(call.cluster, serving)
            request.done()


def _single(call: Call, namespace: str, name: str) -> Call:
    """The delete of one item of a collection."""
    info = replace(call.info, verb="delete", namespace=namespace, name=name)
    return replace(call, info=info)


def not_served() -> NotFound:
    """404 for a resource that the group version does not have."""
    return NotFound("the server could not find the requested resource")


def method_not_allowed() -> MethodNotAllowed:
    return MethodNotAllowed("the server does not allow this method on the requested resource")

