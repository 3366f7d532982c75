"""A batch: several in-process writes that land in one transaction or not at all.

`Loopback.batch` makes one; controllers and bootstrap fill and submit it, so that a workspace appears whole. Where
webhooks are to be asked, or something takes too long for the loop turn in which it is filled, it is planned again
before it lands. Invariant: reads of a batch include its own writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from typing import Any

from msgspec.structs import replace

from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.attempt import Attempt, Postponed, TakesLong
from atoll.machinery.apiserver.call.call import Call
from atoll.machinery.apiserver.call.in_slices import in_slices
from atoll.machinery.apiserver.call.options import DeleteOptions, WriteOptions
from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.apiserver.conversion import ConvertedObject
from atoll.machinery.apiserver.federation.federated_view import Latest
from atoll.machinery.apiserver.rest.create import plan_create
from atoll.machinery.apiserver.rest.delete import plan_delete
from atoll.machinery.apiserver.rest.update import plan_update
from atoll.machinery.apiserver.rest.write import WriteContext
from atoll.machinery.apiserver.writing.commit import AnswersDeadline, FirstStage, WriteService, complete
from atoll.machinery.apiserver.writing.latest_state import LatestState
from atoll.machinery.apiserver.writing.target import Target, make_call
from atoll.machinery.meta.missing_answer import MissingAnswer
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, splice
from atoll.machinery.meta.status import AlreadyExists, Conflict, NotFound
from atoll.machinery.meta.types import LOGICAL_CLUSTERS, NAMESPACES
from atoll.machinery.storage import contract
from atoll.machinery.storage.contract import (
    ClusterRoute,
    Delete,
    DeletePrefix,
    Gate,
    Guard,
    Mutation,
    NamespaceActive,
    Position,
    Put,
    Record,
    ReplicaView,
    Scope,
    Snapshot,
)
from atoll.machinery.storage.limits import Limit, TotalObjects, WithinLimits
from atoll.machinery.storage.pages import position_after

MAX_BATCH = 500


class Overtaken(Exception):
    """Another writer changed what the batch depends on while webhooks were asked."""


#: Errors of `Batch.submit` where another writer changed what the batch depends on.
LOST = (contract.RevisionConflict, contract.ObjectExists, contract.ObjectMissing, contract.GuardFailed, Overtaken)


class Batch:
    """Writes that land together or not at all. Reads include the batch's own writes.

    Every write is planned and admitted like a request's. At most 500; each key at most once. `submit` raises ordinary
    conflicts as the store's errors: the caller reconciles again.
    """

    def __init__(self, core: WriteService, manager: str) -> None:
        self._core, self._options, self.manager = core, WriteOptions(False, manager, "Ignore"), manager
        self._steps: list[Callable[[], None]] = []
        self._answers: dict[Hashable, Any] = {}
        self._begin()

    def _begin(self, held: Snapshot | None = None) -> None:
        """Begin without writes, at the latest state; in slices at the one that is held."""
        self._hold(held)
        self._postponed = Postponed()
        self._mutations: list[Mutation] = []
        self._guards: list[Guard] = []
        self._overlay: dict[ObjectKey, Record | None] = {}
        #: Number of writes by type and cluster, and the clusters that this batch creates: the store has no rows of
        #: those, because otherwise their LogicalCluster could not be created.
        self._written: Counter[tuple[ResourceType, str]] = Counter()
        self._made: set[str] = set()
        self._stamps: dict[tuple[ResourceType, ...], Hashable] = {}
        #: Of the writes, once they are applied.
        self._revisions: Sequence[int] = ()

    def __len__(self) -> int:
        """Return the number of writes."""
        return len(self._mutations)

    def _hold(self, held: Snapshot | None) -> None:
        """Read this snapshot from now on; None: the latest state, each read in a snapshot of its own."""
        self._held = held
        self._state: LatestState | Snapshot = held or LatestState(self._core.store)
        self._replicas: ReplicaView = Latest(self._core.store) if held is None else held.replicas

    def fill(self, add: Callable[[Batch], None]) -> None:
        """Have `add` add writes; all that it reads is of one snapshot."""
        with self._core.store.snapshot() as snapshot:
            self._hold(snapshot)
            try:
                add(self)
            finally:
                self._hold(None)

    # --- View ---

    @property
    def revision(self) -> int:
        return self._state.revision

    @property
    def replicas(self) -> ReplicaView:
        return self._replicas

    def get(self, key: ObjectKey) -> Record | None:
        if key in self._overlay:
            return self._overlay[key]
        if key.cluster in self._made:
            return None
        return self._state.get(key)

    def revision_of(self, key: ObjectKey) -> int:
        """Return the revision of an object; 0 if it is absent, or newly created by this batch."""
        if key in self._overlay:
            record = self._overlay[key]
            return record.revision if record is not None else 0
        if key.cluster in self._made:
            return 0
        return self._state.revision_of(key)

    def last(self, type: ResourceType, cluster: str) -> int:
        """Return the revision of the type's last change; a number unknown to caches once the batch wrote the type."""
        own = self._written.get((type, cluster), 0)
        if cluster in self._made:
            return own
        return self._state.last(type, cluster) + own

    def lasts(self, types: Sequence[ResourceType], cluster: str) -> tuple[int, ...]:
        """Return what `last` does of each type."""
        return tuple([self.last(type, cluster) for type in types])

    def has_written(self, type: ResourceType, cluster: str) -> bool:
        """Whether the batch contains writes of a type in a cluster; without, its view of them is the store's."""
        return (type, cluster) in self._written

    def stamp(self, types: Sequence[ResourceType]) -> Hashable:
        """Return the stamp of the state at the first call: a batch is filled within one loop turn."""
        key = tuple(types)
        found = self._stamps.get(key)
        if found is None:
            found = self._stamps[key] = self._state.stamp(types)
        return found

    def gate(self, cluster: str) -> Gate:
        return self._state.gate(cluster)

    def limits(self, type: ResourceType, cluster: str, namespace: str) -> list[Limit]:
        """Return the stored limits, without the batch's own writes."""
        return self._state.limits(type, cluster, namespace)

    def total(self, cluster: str) -> TotalObjects:
        """Return the stored total, without the batch's own writes."""
        return self._state.total(cluster)

    @property
    def catalogs(self) -> Catalogs:
        return self._core.catalogs

    def catalog(self, cluster: str) -> Catalog:
        """Return the catalogue of a cluster, including the batch's writes."""
        return self._core.catalogs.of(self, cluster)

    def scan(self, scope: Scope, after: Position | None = None, limit: int = 500) -> list[Record]:
        own = self._own(scope, after)
        found: list[Record] = []
        if scope.cluster not in self._made:
            # More by the number of possible deletions, as fewer than `limit` means the end of the scope.
            found = self._state.scan(scope, after, limit + len(own))
        if not own:
            return found
        merged = {record.key: record for record in found} | own
        return sorted((record for record in merged.values() if record is not None), key=_key)[:limit]

    def revisions(self, scope: Scope, after: Position | None = None, limit: int = 500) -> list[tuple[ObjectKey, int]]:
        own = self._own(scope, after)
        found: list[tuple[ObjectKey, int]] = []
        if scope.cluster not in self._made:
            found = self._state.revisions(scope, after, limit + len(own))
        if not own:
            return found
        merged = {key: revision for key, revision in found if key not in own}
        merged.update((key, 0) for key, record in own.items() if record is not None)
        return sorted(merged.items())[:limit]

    def _own(self, scope: Scope, after: Position | None) -> dict[ObjectKey, Record | None]:
        """Return what the batch wrote in a scope, None for a deletion."""
        if not self._written[scope.type, scope.cluster]:
            return {}
        return {key: record for key, record in self._overlay.items() if _is_behind(key, scope, after)}

    def labelled(
        self, label: str, value: str, type: ResourceType | None = None, limit: int = 0, after: ObjectKey | None = None
    ) -> list[ObjectKey]:
        """Return stored keys, without the batch's own writes."""
        return self._state.labelled(label, value, type, limit, after)

    # --- writes ---

    def create(self, target: Target, obj: Object, *, whole: bool = True) -> None:
        """Add a creation; `get` then returns the object as it will be stored, without a revision."""
        self._plan(make_call(target, "create", obj, self.manager, whole=whole), plan_create)

    def update(self, target: Target, obj: Object, *, whole: bool = False) -> None:
        """Add a replacement of an object (or its subresource) read through this batch; `whole`: status too."""
        self._plan(make_call(target, "update", obj, self.manager, whole=whole), plan_update)

    def add_planned(
        self, mutations: Sequence[Mutation], guards: Sequence[Guard], holds: Callable[[Snapshot], bool]
    ) -> None:
        """Add writes that were planned and admitted in a state like this one. Raises Overtaken where it is another."""

        def step() -> None:
            with self._core.store.snapshot() if self._held is None else nullcontext(self._held) as snapshot:
                if not holds(snapshot):
                    raise Overtaken
            self._guards.extend(guard for guard in guards if guard not in self._guards)
            for mutation in mutations:
                self._add_mutation(mutation)

        self._step(step)

    def delete(self, target: Target, options: DeleteOptions) -> None:
        """Add a deletion, or its start while finalizers hold the object. Raises NotFound."""
        call = make_call(target, "delete", None, self.manager)
        self._plan(call, lambda context: plan_delete(context, target.name, options))

    def delete_prefix(self, scope: Scope) -> None:
        """Add the removal of the objects of a scope without finalizers; at most 500."""
        self._step(lambda: self._mutations.append(DeletePrefix(scope)))

    def route(self, cluster: str, shard: str, generation: int = 0) -> None:
        """Add the route of a cluster to another shard ("": removed)."""
        self._step(lambda: self._mutations.append(ClusterRoute(cluster, shard, generation)))

    def remove(self, record: Record) -> None:
        """Add the removal of an object with its logical cluster, at the revision it was read, without admission."""

        def remove() -> None:
            self._mutations.append(Delete(record.key, record.revision))
            self._note(record.key, None)

        self._step(remove)

    def guard(self, *guards: Guard) -> None:
        """Add guards, which must hold when the batch is applied."""
        self._step(lambda: self._guards.extend(guards))

    def _step(self, step: Callable[[], None]) -> None:
        step()
        self._steps.append(step)

    def _plan(self, call: Call, plan: Callable[[WriteContext], FirstStage]) -> None:
        attempt, converted = Attempt(answers=self._answers), ConvertedObject.of(call.kind, self._core.conversions)
        call = replace(call, attempt=attempt, kind=call.kind if converted is None else converted.kind)

        def step() -> None:
            attempt.postponed = self._postponed
            try:
                self._add(call, plan(self._core.context(call, self, self._options)))
            except MissingAnswer as missing:
                # Admission asks about it in another version, or about a cluster that is sought: it is planned again.
                self._postponed.lacking.append(missing)

        self._step(step)

    def _add(self, call: Call, stage: FirstStage) -> None:
        assert len(self._mutations) < MAX_BATCH, "a batch holds at most 500 mutations"
        plan = complete(stage, call, self)
        self._guards.extend(guard for guard in plan.guards if not self._holds(guard))
        for mutation in plan.mutations:
            self._add_mutation(mutation)

    def _add_mutation(self, mutation: Mutation) -> None:
        assert not isinstance(mutation, DeletePrefix)
        self._mutations.append(mutation)
        if isinstance(mutation, Put):
            value = splice(mutation.value, mutation.hole, mutation.expected)
            self._note(mutation.key, Record(mutation.key, mutation.expected, value))
            if mutation.key.type == LOGICAL_CLUSTERS and not mutation.expected:
                self._made.add(mutation.key.cluster)
        elif isinstance(mutation, Delete):
            self._note(mutation.key, None)

    def _note(self, key: ObjectKey, record: Record | None) -> None:
        self._overlay[key] = record
        self._written[key.type, key.cluster] += 1

    def _holds(self, guard: Guard) -> bool:
        """Whether a guard is present already, or is of a namespace that this batch creates."""
        if isinstance(guard, NamespaceActive):
            own = ObjectKey(NAMESPACES, guard.cluster, "", guard.namespace)
            if self._overlay.get(own) is not None:
                return True
        return guard in self._guards

    async def submit(self) -> Sequence[int]:
        """Apply all writes durably. Raises the store's errors, and then nothing is applied.

        A reached limit is Forbidden: no other writer's change follows that would let the caller reconcile again. If
        webhooks are to be asked, the writes are planned again with their answers, at the then latest state. Raises
        the ApiError of a denial, and Timeout past the limit of answers.
        """
        if self._postponed.lacking:
            await self._plan_with_answers()
        if not self._mutations:
            return ()
        try:
            self._revisions = await self._core.store.submit(self._mutations, self._guards)
            return self._revisions
        except contract.GuardFailed as error:
            if isinstance(error.guard, WithinLimits):
                raise errors.over_limit(error.guard) from error
            raise

    def submitted(self, key: ObjectKey) -> int:
        """Return the revision at which a submitted batch put an object; 0 if it did not."""
        done = zip(self._mutations, self._revisions, strict=True) if self._revisions else ()
        return next((revision for put, revision in done if isinstance(put, Put) and put.key == key), 0)

    async def _plan_with_answers(self) -> None:
        """Plan until no answer is missing: once something took long, in slices."""
        deadline, takes_long = AnswersDeadline(), False
        while self._postponed.lacking:
            takes_long = takes_long or self._postponed.takes_long
            missing = self._postponed.lacking[0]
            if not isinstance(missing, TakesLong):
                await deadline.within(missing.fetch())
            try:
                if takes_long:
                    await in_slices(self._plan_in_slices)
                else:
                    self._plan_again()
            except (AlreadyExists, NotFound, Conflict) as error:
                raise Overtaken from error

    def _plan_in_slices(self) -> None:
        with self._core.store.snapshot() as snapshot:
            try:
                self._plan_again(snapshot)
            finally:
                self._hold(None)

    def _plan_again(self, held: Snapshot | None = None) -> None:
        self._begin(held)
        for step in self._steps:
            step()

    async def try_submit(self) -> bool:
        """Like `submit`, but return False where another writer changed what the batch depends on."""
        try:
            await self.submit()
        except LOST:
            return False
        return True


def _key(record: Record) -> ObjectKey:
    return record.key


def _is_behind(key: ObjectKey, scope: Scope, after: Position | None) -> bool:
    """Whether an object belongs to a page of a scope after a position."""
    inside = key.type == scope.type and key.cluster == scope.cluster and scope.namespace in {"", key.namespace}
    return inside and (after is None or position_after(key) > after)
