"""One request as verb handlers see it: typed, authenticated, resolved; and what they answer.

The pipeline makes a Call from an HTTP request; in-process writers make one directly. Nothing below the
pipeline knows HTTP. A Call is read-only but for `warnings` and `audit`, which only grow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from atoll.machinery.apiserver.call.negotiation import JSON, PLAIN, Form
from atoll.machinery.apiserver.call.requestinfo import RequestInfo
from atoll.machinery.apiserver.filtered_rows.row_filter import RowSource
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.selectors import LabelSelector
from atoll.machinery.meta.user import User
from atoll.machinery.storage.contract import Gate, Guard, Mutation, Position, Record, ReplicaView, Scope

MAX_BODY = 3 * 1024 * 1024


class View(Protocol):
    """What planning a write may read: a snapshot, or a snapshot overlaid with a batch's own writes."""

    @property
    def revision(self) -> int: ...

    @property
    def replicas(self) -> ReplicaView:
        """What other shards published; a batch's own routes are not in it."""

    def get(self, key: ObjectKey) -> Record | None: ...

    def revision_of(self, key: ObjectKey) -> int: ...

    def last(self, type: ResourceType, cluster: str) -> int: ...

    def gate(self, cluster: str) -> Gate: ...

    def scan(self, scope: Scope, after: Position | None = None, limit: int = 500) -> list[Record]: ...

    def revisions(self, scope: Scope, after: Position | None = None, limit: int = 500) -> list[tuple[ObjectKey, int]]:
        """Revisions of the objects that `scan` gives; 0 for what a batch has not submitted yet."""

    def labelled(
        self, label: str, value: str, type: ResourceType | None = None, limit: int = 0, after: ObjectKey | None = None
    ) -> list[ObjectKey]: ...


#: Refuses a write by the object and the one before, either of which may be None. Raises ApiError.
Check = Callable[[Object | None, Object | None], None]
#: Runs before mutating admission, in the view that the write is planned in. Takes the object, which it may change, and
#: the one before; either may be None. Returns what must hold when the write is submitted. Raises ApiError.
WriteRule = Callable[[View, Object | None, Object | None], Sequence[Guard]]


def no_check(obj: Object | None, old: Object | None) -> None:
    """Allow every write."""


def no_rule(view: View, obj: Object | None, old: Object | None) -> Sequence[Guard]:
    """Change nothing, require nothing."""
    return ()


class Restrictions(msgspec.Struct, frozen=True, kw_only=True):
    """What a virtual workspace asks of a call beside admission, and the rows it shows. Without one: the defaults."""

    check: Check = no_check
    write_rule: WriteRule = no_rule
    #: Only objects with these labels exist for the call; None: all.
    labels: LabelSelector | None = None
    #: Rows to read in place of the store's.
    rows: RowSource | None = None


UNRESTRICTED = Restrictions()


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One authenticated request for one kind in one logical cluster ("" for wildcard requests)."""

    info: RequestInfo
    user: User
    cluster: str
    kind: Kind
    form: Form = PLAIN
    body: bytes = b""
    content_type: str = JSON
    #: The body already decoded, for in-process callers; never modified by handlers.
    obj: Object | None = None
    user_agent: str = ""
    now: str = ""
    #: The system's own builders bring whole objects: status, uid and creation time stay; never a client's.
    whole: bool = False
    #: An access review by system:masters that asks past the doors of workspaces.
    deep: bool = False
    warnings: list[str] = []
    #: Asks the authorizer for one more verb on the same object (create, for an apply that creates).
    may: Callable[[str], bool] = lambda verb: True
    restrictions: Restrictions = UNRESTRICTED

    @property
    def scope(self) -> Scope:
        return Scope(self.kind.type, self.cluster, self.info.namespace if self.kind.namespaced else "")

    def key(self, name: str) -> ObjectKey:
        namespace = self.info.namespace if self.kind.namespaced else ""
        return ObjectKey(self.kind.type, self.cluster, namespace, name)


class _Metadata(msgspec.Struct):
    labels: dict[str, str] = {}


class _Labelled(msgspec.Struct):
    metadata: _Metadata


_labelled = msgspec.json.Decoder(_Labelled)


def look_up(call: Call, view: View, name: str) -> Record | None:
    """The stored object of a name, as far as it is there for the request: the one look-up of reads and writes."""
    rows, labels = call.restrictions.rows, call.restrictions.labels
    record = view.get(call.key(name)) if rows is None else rows.get(view, call.key(name))
    if record is None or labels is None:
        return record
    return record if labels.matches(_labelled.decode(record.value).metadata.labels) else None


class Reply(msgspec.Struct, frozen=True):
    """A whole answer. Bodies are complete, trailing newline included; `verbatim` ones are sent as they are."""

    status: int
    body: bytes | Sequence[bytes]
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    verbatim: bool = False


class Answer(Protocol):
    """How a write is answered once it is durable."""

    def reply(self, revisions: Sequence[int]) -> Reply:
        """Return the reply. `revisions` are those that the store assigned, in order; none for a dry run."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A write ready to be submitted, and its answer.

    `blind` plans carry no precondition of the client's: after a conflict they are planned again. A plan without
    mutations (dry run) is answered at once.
    """

    answer: Answer
    mutations: tuple[Mutation, ...] = ()
    guards: tuple[Guard, ...] = ()
    blind: bool = True
