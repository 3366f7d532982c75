"""The server's own client: controllers and bootstrap write through it, under a loopback identity.

Same kinds, same planning, same admission as any request; only HTTP is missing. `Batch` collects several writes
and submits them together, its reads overlaid with what it holds, so that a workspace appears whole or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from types import MappingProxyType

import msgspec

from atoll.machinery.apiserver.call.call import Call, Reply
from atoll.machinery.apiserver.call.options import DeleteOptions, WriteOptions
from atoll.machinery.apiserver.call.requestinfo import RequestInfo
from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.apiserver.conversion import bare
from atoll.machinery.apiserver.federation.federated_view import Latest
from atoll.machinery.apiserver.rest.create import plan_create
from atoll.machinery.apiserver.rest.delete import plan_delete
from atoll.machinery.apiserver.rest.patch import APPLY, plan_patch
from atoll.machinery.apiserver.rest.update import plan_update
from atoll.machinery.apiserver.rest.write import PreparedWrite, WriteContext
from atoll.machinery.apiserver.writing.commit import FirstStage, WriteService, complete
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import times
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode, encode_json, splice
from atoll.machinery.meta.status import NotFound
from atoll.machinery.meta.types import LOGICAL_CLUSTERS, NAMESPACES
from atoll.machinery.meta.user import MASTERS, User
from atoll.machinery.storage import contract
from atoll.machinery.storage.contract import (
    ClusterRoute,
    Delete,
    DeletePrefix,
    Flag,
    Gate,
    Guard,
    Mutation,
    NamespaceActive,
    Position,
    Put,
    Record,
    ReplicaView,
    Scope,
    Store,
)
from atoll.machinery.storage.pages import PAGE, position_after

LOOPBACK_USER = User("system:apiserver", (MASTERS,))
MAX_BATCH = 500
#: What a batch raises where somebody wrote first what it goes by.
LOST = (contract.RevisionConflict, contract.ObjectExists, contract.ObjectMissing, contract.GuardFailed)
_EMPTY: MappingProxyType[str, str] = MappingProxyType({})


class Target(msgspec.Struct, frozen=True):
    """Where a loopback write goes: kind, cluster, namespace, name, subresource."""

    kind: Kind
    cluster: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def make_call(target: Target, verb: str, obj: Object | None, manager: str, *, whole: bool = False) -> Call:
    """A Call of the loopback identity."""
    kind = target.kind
    info = RequestInfo(
        "LOOPBACK",
        target.cluster,
        "",
        verb,
        _EMPTY,
        is_resource=True,
        group=kind.group,
        version=kind.version,
        resource=kind.plural,
        namespace=target.namespace,
        name=target.name,
        subresource=target.subresource,
    )
    return Call(
        info=info,
        user=LOOPBACK_USER,
        cluster=target.cluster,
        kind=kind,
        obj=obj,
        user_agent=manager,
        now=times.now(),
        whole=whole,
        warnings=[],
    )


class Loopback:
    """Reads and single writes of the system itself. `manager` is the field manager of its writes."""

    def __init__(self, core: WriteService, manager: str) -> None:
        self.core, self.manager = core, manager
        self._options = WriteOptions(False, manager, "Ignore")

    @property
    def store(self) -> Store:
        return self.core.store

    def get(self, type: ResourceType, cluster: str, namespace: str, name: str) -> Object | None:
        """An object as stored, or None."""
        with self.core.store.snapshot() as snapshot:
            record = snapshot.get(ObjectKey(type, cluster, namespace, name))
        return decode(record.value) if record is not None else None

    def each(self, scope: Scope) -> Iterator[Object]:
        """Every object of a scope, page by page, each page in a snapshot of its own."""
        for record in self.records(scope):
            yield decode(record.value)

    def records(self, scope: Scope) -> Iterator[Record]:
        """Every object of a scope as it is stored; its flags say much without decoding it."""
        after: Position | None = None
        while True:
            with self.core.store.snapshot() as snapshot:
                records = snapshot.scan(scope, after, PAGE)
            yield from records
            if len(records) < PAGE:
                return
            after = position_after(records[-1].key)

    def deleting(self, scope: Scope) -> Iterator[ObjectKey]:
        """Keys of those objects of a scope whose deletion began."""
        return (record.key for record in self.records(scope) if record.flags & Flag.DELETING)

    def keys(self, scope: Scope) -> Iterator[ObjectKey]:
        """Keys of every object of a scope; the objects are not read."""
        after: Position | None = None
        while True:
            with self.core.store.snapshot() as snapshot:
                page = snapshot.revisions(scope, after, PAGE)
            for key, _ in page:
                yield key
            if len(page) < PAGE:
                return
            after = position_after(page[-1][0])

    async def create(self, target: Target, obj: Object, *, whole: bool = False) -> Object:
        """Create an object. Raises AlreadyExists and whatever admission refuses."""
        call = make_call(target, "create", obj, self.manager, whole=whole)
        return await self._write(call, plan_create)

    async def update(self, target: Target, obj: Object, *, whole: bool = False) -> Object:
        """Replace an object or its subresource; obj carries the resourceVersion it was read at.

        `whole` writes status together with the rest.
        """
        return await self._write(make_call(target, "update", obj, self.manager, whole=whole), plan_update)

    async def apply(self, target: Target, patch: Object, manager: str) -> Object:
        """Server-side apply of a document, by force, as a field manager of its own; fields that `manager` applied
        before and that are not in the document go. Raises NotFound for a subresource of what is not there.
        """
        call = make_call(target, "patch", None, manager)
        query = MappingProxyType({"fieldManager": manager, "force": "true"})
        info = msgspec.structs.replace(call.info, query=query)
        call = msgspec.structs.replace(call, info=info, body=encode_json(patch), content_type=APPLY)
        options = WriteOptions(False, manager, "Ignore", force=True)
        reply = await self.core.commit(call, lambda call, view: plan_patch(self.core.context(call, view, options)))
        return _decoded(reply)

    async def delete(self, target: Target, options: DeleteOptions) -> None:
        """Delete an object; one that is gone already is fine."""
        # Nobody reads the answer, so that no webhook has to be asked for it.
        kind = bare(target.kind) if target.kind.conversion is not None else target.kind
        call = make_call(msgspec.structs.replace(target, kind=kind), "delete", None, self.manager)
        try:
            await self.core.commit(
                call, lambda call, view: plan_delete(self.core.context(call, view, self._options), target.name, options)
            )
        except NotFound:
            return

    async def _write(self, call: Call, plan: Callable[[WriteContext], PreparedWrite]) -> Object:
        reply = await self.core.commit(call, lambda call, view: plan(self.core.context(call, view, self._options)))
        return _decoded(reply)

    def batch(self) -> Batch:
        """A new batch at the latest state. Use within one loop turn, then await `submit`."""
        return Batch(self.core, self.manager)


def _decoded(reply: Reply) -> Object:
    return decode(reply.body if isinstance(reply.body, bytes) else b"".join(reply.body))


class Batch:
    """Several writes that land together or not at all. Reads see what the batch holds.

    Every write is planned and admitted like a request's. At most 500; each key at most once. Ordinary conflicts
    surface from `submit` as the store's errors: the caller reconciles again.
    """

    def __init__(self, core: WriteService, manager: str) -> None:
        self._core, self._options = core, WriteOptions(False, manager, "Ignore")
        self.manager, self._replicas = manager, Latest(core.store)
        self._mutations: list[Mutation] = []
        self._guards: list[Guard] = []
        self._overlay: dict[ObjectKey, Record | None] = {}
        #: How often each type of each cluster was written, and the clusters that this batch makes: the store has
        #: nothing of those, and if it had, their LogicalCluster could not be created.
        self._written: Counter[tuple[ResourceType, str]] = Counter()
        self._made: set[str] = set()

    def __len__(self) -> int:
        """How many writes it holds."""
        return len(self._mutations)

    # --- View ---

    @property
    def revision(self) -> int:
        with self._core.store.snapshot() as snapshot:
            return snapshot.revision

    @property
    def replicas(self) -> ReplicaView:
        return self._replicas

    def get(self, key: ObjectKey) -> Record | None:
        if key in self._overlay:
            return self._overlay[key]
        if key.cluster in self._made:
            return None
        with self._core.store.snapshot() as snapshot:
            return snapshot.get(key)

    def revision_of(self, key: ObjectKey) -> int:
        """Its revision; 0 if it is absent, or written by this batch and not yet anywhere else."""
        if key in self._overlay:
            record = self._overlay[key]
            return record.revision if record is not None else 0
        if key.cluster in self._made:
            return 0
        with self._core.store.snapshot() as snapshot:
            return snapshot.revision_of(key)

    def last(self, type: ResourceType, cluster: str) -> int:
        """Revision of the type's last change; one that no cache knows once the batch itself wrote the type."""
        own = self._written[type, cluster]
        if cluster in self._made:
            return own
        with self._core.store.snapshot() as snapshot:
            return snapshot.last(type, cluster) + own

    def gate(self, cluster: str) -> Gate:
        with self._core.store.snapshot() as snapshot:
            return snapshot.gate(cluster)

    def catalog(self, cluster: str) -> Catalog:
        """What a cluster serves, with what the batch holds."""
        return self._core.catalogs.of(self, cluster)

    def scan(self, scope: Scope, after: Position | None = None, limit: int = 500) -> list[Record]:
        own: dict[ObjectKey, Record | None] = {}
        if self._written[scope.type, scope.cluster]:
            own = {key: record for key, record in self._overlay.items() if _is_behind(key, scope, after)}
        found: list[Record] = []
        if scope.cluster not in self._made:
            with self._core.store.snapshot() as snapshot:
                # As many more as the batch may have deleted: fewer than `limit` says that there are no others.
                found = snapshot.scan(scope, after, limit + len(own))
        if not own:
            return found
        merged = {record.key: record for record in found} | own
        return sorted((record for record in merged.values() if record is not None), key=_key)[:limit]

    def revisions(self, scope: Scope, after: Position | None = None, limit: int = 500) -> list[tuple[ObjectKey, int]]:
        return [
            (record.key, 0 if record.key in self._overlay else record.revision)
            for record in self.scan(scope, after, limit)
        ]

    def labelled(
        self, label: str, value: str, type: ResourceType | None = None, limit: int = 0, after: ObjectKey | None = None
    ) -> list[ObjectKey]:
        """As stored: the batch's own writes are not in it."""
        with self._core.store.snapshot() as snapshot:
            return snapshot.labelled(label, value, type, limit, after)

    # --- writes ---

    def create(self, target: Target, obj: Object, *, whole: bool = True) -> None:
        """Add a creation; `get` gives the object as it will be stored, without a revision."""
        call = make_call(target, "create", obj, self.manager, whole=whole)
        self._add(call, plan_create(self._core.context(call, self, self._options)))

    def update(self, target: Target, obj: Object, *, whole: bool = False) -> None:
        """Add a replacement of an object (or its subresource) read through this batch; `whole`: status too."""
        call = make_call(target, "update", obj, self.manager, whole=whole)
        self._add(call, plan_update(self._core.context(call, self, self._options)))

    def delete(self, target: Target, options: DeleteOptions) -> None:
        """Add a deletion, or its start where something holds the object. Raises NotFound."""
        call = make_call(target, "delete", None, self.manager)
        self._add(call, plan_delete(self._core.context(call, self, self._options), target.name, options))

    def delete_prefix(self, scope: Scope) -> None:
        """Add the removal of what a scope holds and no finalizer keeps; at most 500 objects of it."""
        self._mutations.append(DeletePrefix(scope))

    def route(self, cluster: str, shard: str, generation: int = 0) -> None:
        """Add that a cluster lies on another shard ("": nowhere any more). It is told from what is submitted."""
        self._mutations.append(ClusterRoute(cluster, shard, generation))

    def remove(self, record: Record) -> None:
        """Add the end of an object that its logical cluster takes along, as it was read; nobody is asked any more."""
        self._mutations.append(Delete(record.key, record.revision))
        self._note(record.key, None)

    def guard(self, *guards: Guard) -> None:
        """Add what must hold when the batch is applied."""
        self._guards.extend(guards)

    def _add(self, call: Call, stage: FirstStage) -> None:
        assert len(self._mutations) < MAX_BATCH, "a batch holds at most 500 mutations"
        plan = complete(stage, call, self)
        (mutation,) = plan.mutations
        assert not isinstance(mutation, DeletePrefix)
        self._mutations.append(mutation)
        self._guards.extend(guard for guard in plan.guards if not self._holds(guard))
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
        """Whether a guard is there already, or speaks of a namespace that this very batch creates."""
        if isinstance(guard, NamespaceActive):
            own = ObjectKey(NAMESPACES, guard.cluster, "", guard.namespace)
            if self._overlay.get(own) is not None:
                return True
        return guard in self._guards

    async def submit(self) -> Sequence[int]:
        """Apply everything, durably. Raises the store's errors; then nothing was done."""
        if not self._mutations:
            return ()
        return await self._core.store.submit(self._mutations, self._guards)


def _key(record: Record) -> ObjectKey:
    return record.key


def _is_behind(key: ObjectKey, scope: Scope, after: Position | None) -> bool:
    """Whether an object belongs to a page of a scope that begins behind a position."""
    inside = key.type == scope.type and key.cluster == scope.cluster and scope.namespace in {"", key.namespace}
    return inside and (after is None or position_after(key) > after)
