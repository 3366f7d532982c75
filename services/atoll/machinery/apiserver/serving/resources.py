"""Resource requests: dispatch of an authorized request to its verb.

The pipeline calls `serve`, which finds the kind and makes the Call. `reads` serves reads, `watches` watches, `writes`
writes. Invariant: an unknown kind, verb or subresource is an error before any object is read or written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Call, Reply, Restrictions
from atoll.machinery.apiserver.call.negotiation import PROTOBUF, Form, choose
from atoll.machinery.apiserver.call.requestinfo import RequestInfo
from atoll.machinery.apiserver.conversion import bare
from atoll.machinery.apiserver.filtered_rows import EVERY_IDENTITY, MergedRows
from atoll.machinery.apiserver.request import Request
from atoll.machinery.apiserver.rest.body import has_message
from atoll.machinery.apiserver.serving.collections import delete_collection
from atoll.machinery.apiserver.serving.in_flight import InFlight
from atoll.machinery.apiserver.serving.reads import Reads
from atoll.machinery.apiserver.serving.reviews import is_deep
from atoll.machinery.apiserver.serving.watches import Watches
from atoll.machinery.apiserver.serving.writes import Writes
from atoll.machinery.apiserver.writing.commit import WriteService
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import times
from atoll.machinery.meta.status import ApiError, MethodNotAllowed, NotAcceptable
from atoll.machinery.storage.contract import Snapshot

_MUTATING = frozenset({"create", "update", "patch", "delete"})
#: Object names resolved per caller (`~` is the caller's home); no object can have such a name.
_MADE_UP = frozenset({"~"})
_ON_ONE = frozenset({"update", "patch"})
#: Verbs that answer with one object.
_OF_ONE = frozenset({"get", "create", "update", "patch", "delete"})

#: Serves a create that does not store exactly one object (reviews, token requests, logical clusters), or the get of a
#: name resolved per caller. Returns None to continue with the ordinary verb.
Special = Callable[[Call, Snapshot], Reply | Awaitable[Reply] | None]


class VirtualResourceHandler(Protocol):
    """Serves virtual resources: kinds that an endpoint of their export serves."""

    def serve_kind(self, request: Request, kind: Kind, snapshot: Snapshot) -> None:
        """Answer an authorized request for such a kind. Raises ApiError."""


def _form(accept: str, info: RequestInfo, kind: Kind) -> Form:
    """Return the form of the reply to a client that accepts protobuf. Raises NotAcceptable.

    A built-in kind is in protobuf only for a client that accepts nothing else: its JSON is sent as it is stored. Lists
    and watches of other kinds never are.
    """
    transforms = "get" in kind.verbs
    if not has_message(kind) or (info.verb not in _OF_ONE and not kind.builtin):
        return choose(accept, transforms=transforms)
    if kind.builtin:
        with contextlib.suppress(NotAcceptable):
            return choose(accept, transforms=transforms)
    return choose(accept, transforms=transforms, protobuf=True)


class Resources:
    """Serves every kind. `specials` maps (group, plural, subresource) to creates that store no ordinary object, `named`
    (group, plural, name) to gets of no ordinary object. Without `virtual`, virtual resources are empty."""

    def __init__(
        self,
        core: WriteService,
        specials: Mapping[tuple[str, str, str], Special],
        named: Mapping[tuple[str, str, str], Special],
        watches: Watches,
        virtual: VirtualResourceHandler | None = None,
    ) -> None:
        self._core, self._specials, self._named = core, specials, named
        self._virtual, self._reads = virtual, Reads(core, watches)
        self._in_flight = InFlight()
        self._writes = Writes(core, self._in_flight)

    def serve(self, request: Request, snapshot: Snapshot) -> None:
        """Answer an authorized resource request."""
        if request.scope.remote is not None:
            request.scope.remote.serve(request, snapshot)
            return
        access = request.access
        kind = access.kind if access is not None else None
        if kind is None:
            kind = self._kind(request, snapshot)
            if kind.virtual is not None and self._virtual is not None:
                self._virtual.serve_kind(request, kind, snapshot)
                return
            self._check_place(request.info, kind)
            self._check_verb(request.info, kind)
            if access is not None:
                access.kind = kind
        call = self._call(request, kind)
        if call.kind.deprecation:
            call.warnings.append(call.kind.deprecation)
        special = self._specials.get((call.kind.group, call.kind.plural, call.info.subresource))
        if special is not None and call.info.verb == "create" and self._special(request, call, special, snapshot):
            return
        if call.info.verb in _MUTATING:
            self._writes.write(request, call, snapshot)
        elif call.info.verb == "deletecollection":
            self._in_flight.check()
            self._in_flight.spawn(request, delete_collection(self._core, request, call))
        elif call.info.name in _MADE_UP and (special := self._named_special(call)) is not None:
            self._special(request, call, special, snapshot)
        else:
            work = self._reads.read(request, call, snapshot)
            if work is not None:
                self._in_flight.spawn(request, work)

    def _named_special(self, call: Call) -> Special | None:
        plain = call.info.verb == "get" and not call.info.subresource
        return self._named.get((call.kind.group, call.kind.plural, call.info.name)) if plain else None

    # --- what is asked for ---

    def _kind(self, request: Request, snapshot: Snapshot) -> Kind:
        info = request.info
        wanted = info.group, info.version, info.resource
        if info.is_wildcard:
            return self._wildcard_kind(request, snapshot)
        catalog = request.scope.catalog or self._core.catalogs.for_request(snapshot, request.cluster)
        kind = catalog.find(*wanted)
        if kind is None and (info.group, info.resource) in catalog.unavailable:
            raise errors.unavailable(info.group, info.resource)
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
        kind = (request.scope.catalog or catalogs.base).find(*wanted)
        if kind is not None and info.identity not in {None, kind.identity}:
            raise errors.not_served()
        if kind is None and request.scope.catalog is not None:
            raise errors.not_served()
        catalogs.shipped.caller.can_wait = True
        try:
            if kind is None and info.identity:
                kind = catalogs.by_identity(snapshot, wanted, info.identity)
            elif kind is None and choose(request.http.header("accept")).transform.startswith("PartialObjectMetadata"):
                return self._kind_of_metadata(request, catalogs.served_anywhere(snapshot, wanted))
        finally:
            catalogs.shipped.caller.can_wait = False
        if kind is None:
            raise errors.not_served()
        return kind

    def _kind_of_metadata(self, request: Request, kind: Kind | None) -> Kind:
        """Return a kind whose rows are those of every identity. Raises NotFound for None."""
        if kind is None:
            raise errors.not_served()
        request.scope = replace(request.scope, restrictions=Restrictions(rows=MergedRows(self._core.store)))
        # Metadata is the same in all versions, and one cluster's webhook must not see the objects of others.
        return replace(bare(kind), identity=EVERY_IDENTITY, virtual=None)

    def _call(self, request: Request, kind: Kind) -> Call:
        info, preferences = request.info, request.preferences
        accept, http = preferences.accept, request.exchange.request
        return Call(
            info=info,
            user=request.user,
            cluster=request.cluster,
            kind=kind,
            form=_form(accept, info, kind) if PROTOBUF in accept else choose(accept, transforms="get" in kind.verbs),
            body=http.body,
            content_type=preferences.content_type,
            user_agent=preferences.user_agent,
            fencing_token=preferences.fencing_token,
            now=times.now(),
            warnings=request.warnings,
            audit=request.annotations,
            may=partial(self._may, request),
            deep=preferences.deep and is_deep(http, request.user),
            restrictions=request.scope.restrictions,
        )

    def _may(self, request: Request, verb: str) -> bool:
        """Whether the caller may do a verb now."""
        with self._core.store.snapshot() as view:
            return request.scope.authorize(view, verb).allowed

    def _check_place(self, info: RequestInfo, kind: Kind) -> None:
        """Check that a namespaced kind is written in a namespace, and a cluster-scoped one without."""
        namespaces = not kind.group and kind.plural == "namespaces"
        if not kind.namespaced and info.namespace and not namespaces:
            raise errors.not_served()
        if kind.namespaced and not info.namespace and info.verb not in {"list", "watch", "deletecollection"}:
            if kind.builtin and info.verb == "create":
                raise errors.method_not_allowed()
            raise errors.not_served()
        if kind.namespaced and not info.namespace and info.verb == "deletecollection":
            raise errors.method_not_allowed()

    def _check_verb(self, info: RequestInfo, kind: Kind) -> None:
        verb, one = info.verb, bool(info.name)
        if (verb in _ON_ONE and not one) or (verb == "create" and one and not info.subresource):
            raise errors.method_not_allowed()
        if not info.subresource:
            allowed = kind.verbs
        else:
            sub = kind.subresource(info.subresource)
            if sub is None:
                name = info.subresource.partition("/")[0]
                raise errors.needs_nodes(kind, name) if name in kind.unserved else errors.not_served()
            allowed = sub.verbs
        if verb not in allowed:
            raise errors.method_not_allowed()

    # --- answers ---

    def _special(self, request: Request, call: Call, special: Special, snapshot: Snapshot) -> bool:
        """Serve a special create or get; return whether it was one."""
        answer = special(call, snapshot)
        if isinstance(answer, Reply):
            request.reply(answer)
        elif answer is not None:
            self._in_flight.spawn(request, request.reply_later(answer))
        return answer is not None
