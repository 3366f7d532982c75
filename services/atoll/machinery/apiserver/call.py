"""One request as verb handlers see it: typed, authenticated, resolved; and what they answer.

The pipeline makes a Call from an HTTP request; in-process writers make one directly. Nothing below the
pipeline knows HTTP. A Call is read-only but for `warnings` and `audit`, which only grow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from atoll.machinery.apiserver.negotiation import JSON, PLAIN, Form
from atoll.machinery.apiserver.requestinfo import RequestInfo
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.user import User
from atoll.machinery.storage.contract import Gate, Guard, Mutation, Position, Record, Scope

MAX_BODY = 3 * 1024 * 1024


class View(Protocol):
    """What planning a write may read: a snapshot, or a snapshot overlaid with a batch's own writes."""

    @property
    def revision(self) -> int: ...

    def get(self, key: ObjectKey) -> Record | None: ...

    def revision_of(self, key: ObjectKey) -> int: ...

    def last(self, type: ResourceType, cluster: str) -> int: ...

    def gate(self, cluster: str) -> Gate: ...

    def scan(self, scope: Scope, after: Position | None = None, limit: int = 500) -> list[Record]: ...


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

    @property
    def scope(self) -> Scope:
        return Scope(self.kind.type, self.cluster, self.info.namespace if self.kind.namespaced else "")

    def key(self, name: str) -> ObjectKey:
        namespace = self.info.namespace if self.kind.namespaced else ""
        return ObjectKey(self.kind.type, self.cluster, namespace, name)


class Reply(msgspec.Struct, frozen=True):
    """A whole answer. Bodies are complete, trailing newline included."""

    status: int
    body: bytes | Sequence[bytes]
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A write, planned and not yet done: what to submit, and how to answer once it is durable.

    `blind` plans carry no precondition of the client's: when another writer came first they are planned anew.
    A plan without mutations (dry run) is answered at once. `reply` takes the revisions that submit gave.
    """

    mutations: tuple[Mutation, ...]
    guards: tuple[Guard, ...] = ()
    reply: Callable[[Sequence[int]], Reply]
    blind: bool = True
