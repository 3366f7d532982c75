"""A batch that records what its plans read of the store, so that they can be used again.

A plan is a function of its object and of what it reads. Who makes many objects that differ in a few values only plans
them once, and takes the plans for others for as long as `Reads.hold_in` finds the same. Invariant: a recorded plan is
what would be planned in any snapshot in which its reads hold.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import methodcaller
from typing import Any, NamedTuple

from msgspec.structs import replace

from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.apiserver.rest.create import plan_create
from atoll.machinery.apiserver.writing.batch import Batch
from atoll.machinery.apiserver.writing.commit import WriteService
from atoll.machinery.apiserver.writing.target import Target, make_call
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object
from atoll.machinery.storage.contract import Gate, Guard, Mutation, Position, Record, ReplicaView, Scope, Snapshot
from atoll.machinery.storage.limits import Limit, TotalObjects


class Reads:
    """Reads of a snapshot, and what each of them found."""

    def __init__(self) -> None:
        self._found: dict[Hashable, object] = {}
        self._reads: list[Callable[[Snapshot], Any]] = []
        #: Their apply count; None if they were not read.
        self._replicas: int | None = None

    def note(self, found: object, method: str, *arguments: Any) -> None:
        """Note what a method of a snapshot returned. The first time counts: what changed since does not hold."""
        if (method, arguments) not in self._found:
            self._found[method, arguments] = found
            self._reads.append(methodcaller(method, *arguments))

    def note_replicas(self, count: int) -> None:
        """Note the state of all replicas."""
        self._replicas = count if self._replicas is None else self._replicas

    def mention(self, texts: Iterable[str]) -> bool:
        """Whether a read asked for one of these."""
        asked = [repr(each) for each in self._found]
        return any(text in each for each in asked for text in texts)

    def hold_in(self, snapshot: Snapshot) -> bool:
        """Whether every read finds the same in a snapshot."""
        if self._replicas is not None and snapshot.replicas.count != self._replicas:
            return False
        return [read(snapshot) for read in self._reads] == list(self._found.values())


class Recorded(NamedTuple):
    """What a batch would write, and what that depends on."""

    mutations: tuple[Mutation, ...]
    guards: tuple[Guard, ...]
    reads: Reads


class RecordedBatch(Batch):
    """A batch that is never submitted. What it reads of `cluster`, which it creates at the time `now`, is its own."""

    def __init__(self, core: WriteService, manager: str, cluster: str, now: str) -> None:
        self._reads, self._new, self._now, self._is_repeatable = Reads(), cluster, now, True
        super().__init__(core, manager)

    def recorded(self) -> Recorded | None:
        """Return the plans; None if they lack an answer, or depend on more than can be looked up again."""
        if self._postponed.lacking or not self._is_repeatable:
            return None
        return Recorded(tuple(self._mutations), tuple(self._guards), self._reads)

    def create(self, target: Target, obj: Object, *, whole: bool = True) -> None:
        call = make_call(target, "create", obj, self.manager, whole=whole)
        self._plan(replace(call, now=self._now), plan_create)

    # --- View ---

    @property
    def revision(self) -> int:
        self._is_repeatable = False
        return super().revision

    @property
    def replicas(self) -> ReplicaView:
        found = super().replicas
        self._reads.note_replicas(found.count)
        return found

    @property
    def catalogs(self) -> Catalogs:
        self._is_repeatable = False
        return super().catalogs

    def get(self, key: ObjectKey) -> Record | None:
        found = super().get(key)
        self._record(key.cluster, found.revision if found is not None else 0, "revision_of", key)
        return found

    def revision_of(self, key: ObjectKey) -> int:
        found = super().revision_of(key)
        self._record(key.cluster, found, "revision_of", key)
        return found

    def last(self, type: ResourceType, cluster: str) -> int:
        found = super().last(type, cluster)
        self._record(cluster, found, "last", type, cluster)
        return found

    def stamp(self, types: Sequence[ResourceType]) -> Hashable:
        found = super().stamp(types)
        self._reads.note(found, "stamp", tuple(types))
        return found

    def gate(self, cluster: str) -> Gate:
        found = super().gate(cluster)
        self._record(cluster, found, "gate", cluster)
        return found

    def limits(self, type: ResourceType, cluster: str, namespace: str) -> list[Limit]:
        found = super().limits(type, cluster, namespace)
        self._record(cluster, found, "limits", type, cluster, namespace)
        return found

    def total(self, cluster: str) -> TotalObjects:
        found = super().total(cluster)
        self._record(cluster, found, "total", cluster)
        return found

    def scan(self, scope: Scope, after: Position | None = None, limit: int = 500) -> list[Record]:
        self.last(scope.type, scope.cluster)
        return super().scan(scope, after, limit)

    def revisions(self, scope: Scope, after: Position | None = None, limit: int = 500) -> list[tuple[ObjectKey, int]]:
        self.last(scope.type, scope.cluster)
        return super().revisions(scope, after, limit)

    def labelled(
        self, label: str, value: str, type: ResourceType | None = None, limit: int = 0, after: ObjectKey | None = None
    ) -> list[ObjectKey]:
        found = super().labelled(label, value, type, limit, after)
        self._reads.note(found, "labelled", label, value, type, limit, after)
        return found

    def _record(self, cluster: str, found: object, method: str, *arguments: Any) -> None:
        if cluster != self._new:
            self._reads.note(found, method, *arguments)
