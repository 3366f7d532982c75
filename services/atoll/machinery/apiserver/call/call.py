"""The typed, authenticated, resolved request that verb handlers take, and the reply or plan that they return.

The pipeline makes a Call from an HTTP request; in-process writers make one directly. Nothing below the pipeline
depends on HTTP. A Call is read-only, except that `warnings` and `audit` grow.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

import msgspec

from atoll.machinery.apiserver.call.attempt import Attempt
from atoll.machinery.apiserver.call.negotiation import JSON, PLAIN, Form
from atoll.machinery.apiserver.call.requestinfo import RequestInfo
from atoll.machinery.apiserver.filtered_rows.row_filter import RowSource
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import partial
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.selectors import LabelSelector
from atoll.machinery.meta.user import CLUSTER_NAME, User
from atoll.machinery.storage.contract import Gate, Guard, Mutation, Position, Record, ReplicaView, Scope
from atoll.machinery.storage.fencing import FencingToken
from atoll.machinery.storage.limits import Limit, TotalObjects

MAX_BODY = 3 * 1024 * 1024


class View(Protocol):
    """The state that a write is planned against: a snapshot, or a snapshot overlaid with the writes of a batch."""

    @property
    def revision(self) -> int: ...

    @property
    def replicas(self) -> ReplicaView:
        """Rows replicated from other shards; a batch's own routes are not among them."""

    def get(self, key: ObjectKey) -> Record | None: ...

    def revision_of(self, key: ObjectKey) -> int: ...

    def last(self, type: ResourceType, cluster: str) -> int: ...

    def stamp(self, types: Sequence[ResourceType]) -> Hashable:
        """Return a value that is another one after each change of a type in any cluster, and of any replica."""

    def lasts(self, types: Sequence[ResourceType], cluster: str) -> tuple[int, ...]: ...

    def gate(self, cluster: str) -> Gate: ...

    def limits(self, type: ResourceType, cluster: str, namespace: str) -> list[Limit]: ...

    def total(self, cluster: str) -> TotalObjects: ...

    def scan(self, scope: Scope, after: Position | None = None, limit: int = 500) -> list[Record]: ...

    def revisions(self, scope: Scope, after: Position | None = None, limit: int = 500) -> list[tuple[ObjectKey, int]]:
        """Return the revisions of the objects that `scan` returns; 0 for a batch's own writes."""

    def labelled(
        self, label: str, value: str, type: ResourceType | None = None, limit: int = 0, after: ObjectKey | None = None
    ) -> list[ObjectKey]: ...


#: Rejects a write, given the new and the old object; either may be None. Raises ApiError.
Check = Callable[[Object | None, Object | None], None]
#: Runs before mutating admission, in the view that the write is planned in. Takes the new object, which it may change,
#: and the old one; either may be None. Returns the guards of the write. Raises ApiError.
WriteRule = Callable[[View, Object | None, Object | None], Sequence[Guard]]


class Restrictions(msgspec.Struct, frozen=True, kw_only=True):
    """Checks that a virtual workspace adds to admission, and the rows it shows. The defaults restrict nothing."""

    check: Check | None = None
    write_rule: WriteRule | None = None
    #: Only objects with these labels are visible to the call; None: all.
    labels: LabelSelector | None = None
    #: Rows to read instead of the store's.
    rows: RowSource | None = None
    #: Objects of Kubernetes' own kinds are data: nothing is allocated to them, and no other object decides about them.
    is_data: bool = False
    #: Annotations that a write through /status sets, with nothing else of metadata; None: what the kind takes.
    status_annotations: tuple[str, ...] | None = None
    #: The request comes through the view of the export that its kind is of.
    is_providers: bool = False


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
    #: The decoded body, from in-process callers; handlers never modify it.
    obj: Object | None = None
    user_agent: str = ""
    #: The token that the write depends on; 0: none.
    fencing_token: int = 0
    now: str = ""
    #: Status, uid and creation time of `obj` are stored too. Only in-process callers set it.
    whole: bool = False
    #: An access review by system:masters that skips the check for access to the workspace.
    deep: bool = False
    warnings: list[str] = []
    #: Audit annotations of its admission.
    audit: dict[str, str] = {}
    #: What its plannings share; None for a plan that is made once.
    attempt: Attempt | None = None
    #: Authorizes another verb on the same object (create, for an apply that creates).
    may: Callable[[str], bool] = lambda verb: True
    restrictions: Restrictions = UNRESTRICTED

    @property
    def scope(self) -> Scope:
        return Scope(self.kind.type, self.cluster, self.info.namespace if self.kind.namespaced else "")

    @property
    def fence(self) -> FencingToken:
        """The guard of a write with a fencing token: an account has one of each home cluster."""
        home = (self.user.extra.get(CLUSTER_NAME) or ("",))[0]
        return FencingToken(self.user.name, self.fencing_token, home)

    def key(self, name: str) -> ObjectKey:
        namespace = self.info.namespace if self.kind.namespaced else ""
        return ObjectKey(self.kind.type, self.cluster, namespace, name)


def look_up(call: Call, view: View, name: str) -> Record | None:
    """Return the stored object by name, or None if it is absent or hidden from the call. Reads and writes share it."""
    rows, labels = call.restrictions.rows, call.restrictions.labels
    record = view.get(call.key(name)) if rows is None else rows.get(view, call.key(name))
    if record is None or labels is None:
        return record
    return record if labels.matches(partial.labels(record.value)) else None


class Reply(msgspec.Struct, frozen=True):
    """A complete reply. The body includes the trailing newline; a `verbatim` body is sent unchanged.

    With the content type of YAML or Kubernetes protobuf the body is JSON, which `Request` encodes.
    """

    status: int
    body: bytes | Sequence[bytes]
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    verbatim: bool = False


class Answer(Protocol):
    """The reply to a write once it is durable."""

    def reply(self, revisions: Sequence[int]) -> Reply:
        """Return the reply. `revisions` are those assigned by the store, in order; empty for a dry run."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A write ready to be submitted, and its reply.

    The first of its mutations is the object's own; the others are of objects that the system keeps beside it.
    `blind` plans carry no precondition of the client: after a conflict they are planned again. A plan without
    mutations (a dry run) is answered at once.
    """

    answer: Answer
    mutations: tuple[Mutation, ...] = ()
    guards: tuple[Guard, ...] = ()
    blind: bool = True
