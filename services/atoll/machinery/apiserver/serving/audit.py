"""The audit log: audit.k8s.io/v1 Events at level Metadata, one JSON line each.

The pipeline's observer makes an Event for each stage of a request and passes it to `AuditLog.record`; a thread writes
them to the file. The buffer is bounded. If the disk is too slow, events of reads are dropped and counted; mutating
requests wait in `room` before they begin, so their events are never dropped. Events never hold bodies, tokens, or
error messages that quote them.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping

import msgspec
import structlog

from atoll.machinery.apiserver.authorization.attributes import Decision
from atoll.machinery.apiserver.call.requestinfo import RequestInfo
from atoll.machinery.meta import times, wellknown
from atoll.machinery.meta.partial import ObjectIdentity, Partial
from atoll.machinery.meta.user import User
from atoll.machinery.wire.exchange import HttpRequest

log = structlog.get_logger()

STANDARD_OUTPUT = "-"
STARTED, COMPLETE, PANIC = "ResponseStarted", "ResponseComplete", "Panic"
#: The annotation that names the front proxy that asserted the user.
THROUGH = "authentication.atoll.dev/front-proxy"
MAX_EVENTS = 10_000
_BATCH = 1000
_RETRY_S = 1.0
#: Verbs that may change state: their events are never dropped.
_MUTATING = frozenset({"create", "update", "patch", "delete", "deletecollection"})
#: Verbs whose request body is the object.
_OBJECT_VERBS = frozenset({"create", "update"})
#: Status codes whose messages quote the request body.
_QUOTING = frozenset({400, 422})
#: Longer texts of a client are truncated.
_LONG = 1024


class UserInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    username: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class ObjectRef(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The object of a request, from its URL and the metadata of its body."""

    resource: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_group: str = ""
    api_version: str = ""
    resource_version: str = ""
    subresource: str = ""


class ResponseStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of a request, without a message that quotes values of objects."""

    metadata: dict[str, str]
    code: int
    status: str = ""
    reason: str = ""
    message: str = ""


class Event(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """One audit.k8s.io/v1 Event. Times are RFC 3339 with microseconds."""

    kind: str
    api_version: str
    level: str
    audit_id: str = msgspec.field(name="auditID")
    stage: str
    request_uri: str = msgspec.field(name="requestURI")
    verb: str
    user: UserInfo
    impersonated_user: UserInfo | None = None
    source_ips: tuple[str, ...] = msgspec.field(default=(), name="sourceIPs")
    user_agent: str = ""
    object_ref: ObjectRef | None = None
    response_status: ResponseStatus | None = None
    request_received_timestamp: str
    stage_timestamp: str
    annotations: dict[str, str] = {}


class AuditedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to audit.

    `user` is the effective user, `impersonator` the authenticated one if they differ. `path` is the canonical
    workspace path if known. `received_s` is Unix time.
    """

    audit_id: str
    http: HttpRequest
    info: RequestInfo
    user: User
    received_s: float
    cluster: str = ""
    path: str = ""
    impersonator: User | None = None
    #: The front proxy that forwarded the request; its X-Forwarded-For is trusted, no other client's is.
    through: str = ""
    decision: Decision | None = None
    #: Further annotations, such as those of access reviews.
    annotations: Mapping[str, str] = {}


def event_of(request: AuditedRequest, stage: str, code: int = 0, reason: str = "", message: str = "") -> Event:
    """Return the event of one stage of a request; `code` is 0 before the reply."""
    sender = request.impersonator or request.user
    status = None
    if code:
        status = ResponseStatus(
            {}, code, "Failure" if code >= 400 else "", reason, "" if code in _QUOTING else message[:_LONG]
        )
    return Event(
        kind="Event",
        api_version="audit.k8s.io/v1",
        level="Metadata",
        audit_id=request.audit_id,
        stage=stage,
        request_uri=request.http.target[:_LONG].decode("utf-8", "replace"),
        verb=request.info.verb,
        user=_user(sender),
        impersonated_user=_user(request.user) if request.impersonator is not None else None,
        source_ips=_addresses(request),
        user_agent=request.http.header("user-agent")[:_LONG],
        object_ref=_object(request.info, request.http),
        response_status=status,
        request_received_timestamp=_micro(request.received_s),
        stage_timestamp=times.now_micro(),
        annotations=_annotations(request),
    )


def _addresses(request: AuditedRequest) -> tuple[str, ...]:
    """Return the source addresses, the first hop first as in Kubernetes; the client's own claims are left out."""
    here = request.http.peer.address
    before = request.http.header("x-forwarded-for")[:_LONG] if request.through else ""
    return (*filter(None, (part.strip() for part in before.split(","))), here)


def _user(user: User) -> UserInfo:
    return UserInfo(user.name, user.uid, user.groups, user.extra)


class _Metadata(ObjectIdentity, frozen=True, rename="camel"):
    resource_version: str = ""


_sent = msgspec.json.Decoder(Partial[_Metadata | None])
_NOTHING = _Metadata()


def _object(info: RequestInfo, http: HttpRequest) -> ObjectRef | None:
    """Return the object that the URL names; missing fields come from the body's metadata, as in Kubernetes."""
    if not info.is_resource:
        return None
    sent = _sent_metadata(http) if info.verb in _OBJECT_VERBS else _NOTHING
    return ObjectRef(
        info.resource,
        (info.namespace or sent.namespace)[:_LONG],
        (info.name or sent.name)[:_LONG],
        sent.uid[:_LONG],
        info.group,
        info.version,
        sent.resource_version[:_LONG],
        info.subresource,
    )


def _sent_metadata(http: HttpRequest) -> _Metadata:
    """Return the metadata of a JSON body; empty if it cannot be decoded."""
    try:
        return _sent.decode(http.body).metadata or _NOTHING
    except msgspec.DecodeError:
        return _NOTHING


def _micro(moment_s: float) -> str:
    seconds = int(moment_s)
    return times.format_micro_time(seconds, int((moment_s - seconds) * 1_000_000_000))


def _annotations(request: AuditedRequest) -> dict[str, str]:
    found = dict(request.annotations)
    if request.decision is not None:
        found.update(request.decision.annotations())
    if request.cluster:
        # kcp sets both annotations to the logical cluster.
        found[wellknown.CLUSTER] = found["tenancy.kcp.io/workspace"] = request.cluster
    if request.path:
        found[wellknown.PATH] = request.path
    if request.through:
        found[THROUGH] = request.through
    return found


def line_of(event: Event) -> bytes:
    """Encode an event as a line of the file. A client's bytes that are not UTF-8 are escaped."""
    try:
        return msgspec.json.encode(event) + b"\n"
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(event)).encode() + b"\n"


class AuditLog:
    """Appends events to a file; `-` is standard output. One per process.

    `record` and `room` belong to the event loop; a thread writes. Raises OSError if the file cannot be opened. A
    failed write is retried, and blocks mutating requests until it succeeds.
    """

    def __init__(self, path: str, max_events: int = MAX_EVENTS) -> None:
        self._file, self._owned = _open(path), path != STANDARD_OUTPUT
        self._max_events = max_events
        self._events: deque[Event] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        #: Number of events of reads dropped because the buffer was full.
        self.dropped = 0
        #: Number of writes that the file refused.
        self.failed_writes = 0
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    @property
    def has_room(self) -> bool:
        """Whether the buffer has room."""
        return len(self._events) < self._max_events or self._closing

    @property
    def waiting(self) -> int:
        """Number of events that are not in the file yet."""
        return len(self._events)

    async def room(self) -> None:
        """Return once the buffer has room. Mutating requests await this before they begin."""
        while True:
            with self._changed:
                if self.has_room:
                    return
                loop = asyncio.get_running_loop()
                waiter: asyncio.Future[None] = loop.create_future()
                self._waiting.append((loop, waiter))
            await waiter

    def record(self, event: Event) -> None:
        """Add an event. An event of a read is dropped if the buffer is full; others never are."""
        with self._changed:
            if len(self._events) >= self._max_events and event.verb not in _MUTATING:
                self.dropped += 1
                return
            self._events.append(event)
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Wait until every recorded event is in the file; return False on timeout."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while self._events:
                left = deadline - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    return not self._events
        return True

    def close(self, timeout_s: float = 5.0) -> None:
        """Write the remaining events and stop; called after the last request. A second call does nothing."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(timeout_s)
        if self._owned and not self._thread.is_alive():
            self._owned = False
            os.close(self._file)

    def _run(self) -> None:
        """Write batches until closed and empty. An event leaves the buffer only once it is in the file."""
        while batch := self._next():
            if not self._write(b"".join(map(line_of, batch))):
                return
            with self._changed:
                for _ in batch:
                    self._events.popleft()
                self._changed.notify_all()
                waiting, self._waiting = self._waiting, []
            for loop, waiter in waiting:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(_wake, waiter)

    def _next(self) -> list[Event]:
        with self._changed:
            while not self._events and not self._closing:
                self._changed.wait()
            return list(itertools.islice(self._events, _BATCH))

    def _write(self, data: bytes) -> bool:
        """Write all of `data`, retrying on errors; return False if the log is closed while the file fails."""
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._file, left) :]
            except OSError as error:
                self.failed_writes += 1
                log.error("audit log cannot be written", error=error.strerror)
                with self._changed:
                    if self._closing or self._changed.wait_for(lambda: self._closing, _RETRY_S):
                        return False
        return True


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _open(path: str) -> int:
    if path == STANDARD_OUTPUT:
        return sys.stdout.fileno()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.fchmod(descriptor, 0o600)  # an existing file may have wider permissions
    return descriptor
