"""The API of a cluster: from an authorized resource request to its verb.

The pipeline calls `serve`. Reads are answered from the request's snapshot at once; what must wait (a revision to
come, a write, a stream) goes on as a task of the exchange.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import TypeVar

import structlog
from msgspec.structs import replace

from atoll.machinery.apiserver import errors
from atoll.machinery.apiserver.call import Call, Reply, View
from atoll.machinery.apiserver.conversion import bare
from atoll.machinery.apiserver.core import Core
from atoll.machinery.apiserver.negotiation import JSON, choose
from atoll.machinery.apiserver.openwatches import OpenWatches
from atoll.machinery.apiserver.options import DeleteOptions, WriteOptions
from atoll.machinery.apiserver.pipeline import Request, fail
from atoll.machinery.apiserver.rest import deletecollection, frames, present, scale, watch
from atoll.machinery.apiserver.rest import list as listing
from atoll.machinery.apiserver.rest.delete import plan_delete, read_options
from atoll.machinery.apiserver.rest.get import get, wanted_revision
from atoll.machinery.apiserver.reviews import is_deep
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import times
from atoll.machinery.meta.objects import encode_json
from atoll.machinery.meta.status import ApiError, Details, MethodNotAllowed, NotFound, TooManyRequests
from atoll.machinery.storage.contract import Compacted, Record, Snapshot
from atoll.machinery.wire.compress import PACKED, Packer

log = structlog.get_logger()

REVISION_WAIT_S = 3.0
#: Requests that change something, under way at a time; beyond it 429 with Retry-After.
MAX_MUTATING = 400
#: Single deletes of one deletecollection under way; they share commits.
DELETES_AT_A_TIME = 32
#: A list that a webhook converts is held back up to so many bytes, to fail whole if it fails.
HELD_BYTES = 16 << 20
_MUTATING = frozenset({"create", "update", "patch", "delete"})
_READS = frozenset({"get", "list", "watch"})
#: Names that no object can have, and that stand for one that depends on who asks.
_MADE_UP = frozenset({"~"})
_ON_ONE = frozenset({"update", "patch"})

V = TypeVar("V")

#: What is left to do for an answer, awaited by the one task of its exchange.
Work = Coroutine[object, object, None]

#: Answers a create that stores nothing (reviews, token requests), or the get of a name that no object has.
Special = Callable[[Call, Snapshot], Reply | Awaitable[Reply]]


class Resources:
    """Serves every kind. `specials` maps (group, plural, subresource) to what is not an ordinary create, `named`
    (group, plural, name) to what is not an ordinary get."""

    def __init__(
        self, core: Core, specials: Mapping[tuple[str, str, str], Special],
        named: Mapping[tuple[str, str, str], Special],
    ) -> None:  # fmt: skip
        self._core, self._specials, self._named = core, specials, named
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
        elif call.info.name in _MADE_UP and (special := self._named_special(call)) is not None:
            self._special(request, call, special, snapshot)
        else:
            work = self._read(request, call, snapshot)
            if work is not None:
                request.exchange.spawn(self._guarded(request, work))

    def _named_special(self, call: Call) -> Special | None:
        plain = call.info.verb == "get" and not call.info.subresource
        return self._named.get((call.kind.group, call.kind.plural, call.info.name)) if plain else None

    # --- what is asked for ---

    def _kind(self, request: Request, snapshot: Snapshot) -> Kind:
        info = request.info
        wanted = info.group, info.version, info.resource
        if info.is_wildcard:
            return self._wildcard_kind(request, snapshot)
        kind = (request.catalog or self._core.catalogs.of(snapshot, request.cluster)).find(*wanted)
        if kind is None or (info.identity is not None and info.identity != kind.identity):
            raise errors.not_served()
        return kind

    def _wildcard_kind(self, request: Request, snapshot: Snapshot) -> Kind:
        info, catalogs = request.info, self._core.catalogs
        if info.verb not in {"list", "watch"}:
            raise MethodNotAllowed(f"{info.verb} is not supported in the `*` logical cluster")
        wanted = info.group, info.version, info.resource
        if info.identity == "":
            raise ApiError(f"invalid resource {info.resource}:: missing identity", code=500, reason="InternalError")
        kind = (request.catalog or catalogs.base).find(*wanted)
        if kind is None and request.catalog is not None:
            raise errors.not_served()
        if kind is None and info.identity:
            kind = catalogs.by_identity(snapshot, wanted, info.identity)
        elif kind is None and choose(request.http.header("accept")).transform.startswith("PartialObjectMetadata"):
            kind = catalogs.defined_anywhere(snapshot, wanted)
            # Metadata is alike in all versions, and one cluster's webhook must not see the objects of others.
            kind = bare(kind) if kind is not None else None
        if kind is None:
            raise errors.not_served()
        return kind

    def _call(self, request: Request, kind: Kind, snapshot: Snapshot) -> Call:
        http, info = request.http, request.info
        self._check_place(request, kind)

        def may(verb: str) -> bool:
            with self._core.store.snapshot() as view:
                return request.judge(view, verb).allowed

        return Call(
            info=info, user=request.user, cluster=request.cluster, kind=kind,
            form=choose(http.header("accept"), transforms="get" in kind.verbs), body=http.body,
            content_type=http.header("content-type"), user_agent=http.header("user-agent"),
            now=times.now(), warnings=request.warnings, may=may, deep=is_deep(http, request.user),
            check=request.check,
        )  # fmt: skip

    def _check_place(self, request: Request, kind: Kind) -> None:
        """Namespaced kinds are written inside a namespace, cluster-scoped ones outside of any."""
        info = request.info
        namespaces = not kind.group and kind.plural == "namespaces"
        if not kind.namespaced and info.namespace and not namespaces:
            raise errors.not_served()
        if kind.namespaced and not info.namespace and info.verb not in {"list", "watch", "deletecollection"}:
            if kind.builtin and info.verb == "create":
                raise method_not_allowed()
            raise errors.not_served()
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
                raise errors.not_served()
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
            if not request.judge(view, request.info.verb).allowed:
                raise errors.forbidden(call.kind, call.info.name, "access was withdrawn")

        request.reply(await self._core.commit(call, self._core.planner(call), recheck))

    def _read(self, request: Request, call: Call, snapshot: Snapshot) -> Work | None:
        """Answer a read, or give what has to be awaited for it: there is one task an exchange."""
        if call.info.verb == "watch":
            self._watch(request, call, snapshot)
            return None
        if call.info.query and wanted_revision(call) > snapshot.revision:
            if call.info.verb == "list":
                listing.checked(call, self._core.store.list_window_s)
            return self._read_later(request, call)
        if call.kind.conversion is not None:
            return self._read_converted(request, call, snapshot)
        if call.info.verb == "list":
            return self._list(request, call)
        if call.info.subresource == "scale":
            return request.reply_read(scale.get_scale(call, snapshot))
        return request.reply_read(get(call, snapshot))

    def _read_converted(self, request: Request, call: Call, snapshot: Snapshot) -> Work:
        """A read of a kind that a webhook converts, in the version asked for."""
        if call.info.verb == "list":
            return self._list_converted(request, call)
        record = snapshot.get(call.key(call.info.name))
        if record is None:
            raise errors.not_found(call.kind, call.info.name)
        return self._get_converted(request, call, record)

    async def _get_converted(self, request: Request, call: Call, record: Record) -> None:
        (value,) = await self._core.conversions.served(call.kind, [record.value])
        call = replace(call, kind=bare(call.kind))
        reply = scale.reply(call, value) if call.info.subresource == "scale" else present.single(call, value)
        await request.reply_packed(reply)

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
        return self._stream_list(request, first, listing.rest_of(call, found, first))

    async def _list_converted(self, request: Request, call: Call) -> None:
        """A list whose first megabytes are all converted before the head is sent, so that it fails whole."""
        convert = partial(self._core.conversions.served, call.kind)
        call = replace(call, kind=bare(call.kind))
        found, first = await listing.start_converted(call, self._core.store, convert)
        if call.form.media_type != JSON or request.is_pretty:
            await request.reply_packed(await listing.collected(call, found, first))
            return
        parts, rest = [first], listing.rest_of(call, found, first)
        async for part in rest:
            parts.append(part)
            if sum(map(len, parts)) > HELD_BYTES:
                await self._stream_list(request, b"".join(parts), rest)
                return
        await request.reply_packed(Reply(200, b"".join(parts)))

    async def _stream_list(self, request: Request, first: bytes, rest: AsyncIterator[bytes]) -> None:
        exchange, packer = request.exchange, Packer() if request.wants_gzip else None
        request.start(JSON, PACKED if packer is not None else ())
        try:
            exchange.write(await packer.pack(first) if packer is not None else first)
            async for part in rest:
                await exchange.drain()
                exchange.write(await packer.pack(part) if packer is not None else part)
            if packer is not None:
                exchange.write(packer.finish())
        except (Compacted, ApiError):
            # Half a list must not be taken for a whole one.
            exchange.abort()
        except ConnectionResetError:
            log.debug("client left during a list", audit_id=request.audit_id)
        else:
            exchange.finish()
        request.done()

    async def _delete_collection(self, request: Request, call: Call) -> None:
        options, convert = read_options(call), None
        if call.kind.conversion is not None:
            convert = partial(self._core.conversions.served, call.kind)
            call = replace(call, kind=bare(call.kind))
        selected = await deletecollection.Selected.open(call, self._core.store, convert)
        chosen = aiter(selected)
        deleted: list[bytes] = []
        while some := await _take(chosen, DELETES_AT_A_TIME):
            gone = await asyncio.gather(*(self._delete_one(call, item, options) for item in some))
            deleted.extend(each for each in gone if each is not None)
        body = b'{"apiVersion":%b,"items":[%b],"kind":%b,"metadata":%b}\n' % (
            encode_json(call.kind.api_version), b",".join(deleted), encode_json(call.kind.list_kind_name),
            encode_json(selected.metadata()),
        )  # fmt: skip
        request.reply(Reply(200, body))

    async def _delete_one(self, call: Call, item: tuple[str, str, bytes], options: DeleteOptions) -> bytes | None:
        """Delete one object of a collection; None if somebody else did."""
        namespace, name, value = item
        one = _single(call, namespace, name)
        try:
            await self._core.commit(
                one, lambda one, view: plan_delete(self._core.writing(one, view, WriteOptions()), name, options)
            )
        except NotFound:
            return None
        return present.in_version(call.kind, value)

    # --- watches ---

    def _watch(self, request: Request, call: Call, snapshot: Snapshot) -> None:
        watched, convert = call.kind, None
        if watched.conversion is not None:
            convert = partial(self._core.conversions.served, watched)
            call = replace(call, kind=bare(watched))
        wanted = watch.checked(call)
        serving = watch.Watch(call, self._core.store, wanted, self._frames, convert)
        revision = max(wanted.options.resource_version, 0)
        request.start(JSON)
        self.watches.add(call.cluster, watched, serving, None if request.lasting else _still(request))
        wait_for = revision if revision > snapshot.revision else 0
        request.exchange.spawn(self._serve_watch(request, call, serving, wait_for))

    async def _serve_watch(self, request: Request, call: Call, serving: watch.Watch, wait_for: int) -> None:
        exchange = request.exchange
        exchange.on_drain(serving.end)
        try:
            if wait_for:
                await self._reach(wait_for)
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


def _still(request: Request) -> Callable[[View], bool]:
    """Whether a watch that is open would still be allowed."""

    def still(view: View) -> bool:
        try:
            return request.judge(view, "watch").allowed
        except ApiError:
            return False

    return still


async def _take(items: AsyncIterator[V], count: int) -> list[V]:
    """The next items, at most `count`; none at the end."""
    taken: list[V] = []
    async for item in items:
        taken.append(item)
        if len(taken) == count:
            break
    return taken


def _single(call: Call, namespace: str, name: str) -> Call:
    """The delete of one item of a collection."""
    info = replace(call.info, verb="delete", namespace=namespace, name=name)
    return replace(call, info=info)


def method_not_allowed() -> MethodNotAllowed:
    return MethodNotAllowed("the server does not allow this method on the requested resource")

