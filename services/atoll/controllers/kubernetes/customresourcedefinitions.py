"""CustomResourceDefinitions: accepted names, the Established condition, and deletion of instances before the CRD.

Watches: CRDs, and deletions of custom objects (a CRD may wait for the last one); APIBindings and LogicalClusters, for
names that become free. Writes: CRD status with the lock of the accepted names, deletions of instances, the clean-up
finalizer. Converges because names are computed from all CRDs and bound APIs of the cluster each time; a freed name
enqueues the CRDs that wait for names.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

import msgspec
from msgspec.structs import replace

from atoll.controllers.content_deleter import HELD, RemainingContent, clear
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.catalog.revision_cache import RevisionCache
from atoll.machinery.apiserver.writing.batch import Batch
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.control.manager import Controller
from atoll.machinery.control.queue import Requeue
from atoll.machinery.kcp.apis.apibindings import may_hold_names
from atoll.machinery.kcp.apis.locks import Lock, read_locks, with_locks
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import rawscan, times, wellknown
from atoll.machinery.meta.conditions import Condition, find, is_true, set_status_condition
from atoll.machinery.meta.names import LOCAL, SYSTEM_BOUND_CRDS, ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, conditions_of, decode, finalizers_of, status_of
from atoll.machinery.meta.status import NotFound
from atoll.machinery.meta.types import API_BINDINGS, CRDS, LOGICAL_CLUSTERS
from atoll.machinery.schema.definitions.approval import approval, is_protected
from atoll.machinery.storage.contract import LogEntry, Operation, RevisionUnchanged, Scope
from atoll.machinery.storage.pages import each_record, each_revision

#: Attempts after a write conflict before the CRD is enqueued again.
FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
#: Number of CRDs whose names are cached.
MAX_CACHED = 8192
#: Schemas have a field of that name, whose value is no text.
_DELETED = rawscan.member("deletionTimestamp", '"')


class _DefinitionNames(msgspec.Struct, frozen=True):
    """Group and accepted names of a CRD. `waits`: some of its names are not accepted."""

    group: str
    names: Object
    waits: bool


class CustomResourceDefinitionController(Controller):
    """Key: (cluster, CRD name)."""

    name = "customresourcedefinition"
    workers = 2

    def __init__(self, loopback: Loopback, kind: Kind, clusters: Kind) -> None:
        self._loopback, self._kind, self._clusters = loopback, kind, clusters
        self._definition_names = RevisionCache(_definition_names, MAX_CACHED)

    def watches(self, type: ResourceType) -> bool:
        return type in {CRDS, API_BINDINGS, LOGICAL_CLUSTERS} or type.identity == LOCAL

    def ends_with_cluster(self, type: ResourceType) -> bool:
        return True

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        key = entry.key
        if key.type in {API_BINDINGS, LOGICAL_CLUSTERS}:
            if _may_free_names(entry):
                yield from self._waiting(key.cluster)
        elif key.type != CRDS:
            if entry.operation is Operation.DELETED:
                yield key.cluster, f"{key.type.resource}.{key.type.group}"
        elif entry.operation is not Operation.DELETED:
            # Of bound CRDs only the deletion is its matter; they are large, and an export may get forty at once.
            if key.cluster != SYSTEM_BOUND_CRDS or _DELETED in entry.value:
                yield key.cluster, key.name
        elif key.cluster != SYSTEM_BOUND_CRDS:
            # Its names are free for the CRDs that wait for them.
            yield from self._waiting(key.cluster)

    def _waiting(self, cluster: str) -> list[tuple[str, str]]:
        """Return the CRDs of a cluster whose names are not all accepted."""
        with self._loopback.store.snapshot() as snapshot:
            return [(cluster, key.name) for key, known in self._others(snapshot, cluster, "") if known.waits]

    def all_keys(self) -> Iterable[Hashable]:
        for key in self._loopback.keys(Scope(CRDS)):
            yield key.cluster, key.name

    async def reconcile(self, key: tuple[str, str]) -> Requeue:
        cluster, name = key
        crd = self._loopback.get(CRDS, cluster, "", name)
        if crd is None:
            return None
        if crd["metadata"].get("deletionTimestamp"):
            return await self._finalize(cluster, crd)
        if cluster == SYSTEM_BOUND_CRDS:
            # Names of bound CRDs are checked in each cluster that binds them.
            return None
        await self._loopback.submit(lambda batch: self._plan(batch, ObjectKey(CRDS, cluster, "", name)))
        return None

    # --- names ---

    def _plan(self, batch: Batch, key: ObjectKey) -> None:
        """Add the accepted names of a CRD, with their lock, to the batch."""
        record = batch.get(key)
        crd = decode(record.value) if record is not None else None
        if crd is None or crd["metadata"].get("deletionTimestamp"):
            return
        status, desired = status_of(crd), self._desired_crd(batch, key.cluster, crd)
        if desired == status:
            return
        if desired["acceptedNames"] != status.get("acceptedNames"):
            self._hold(batch, key, crd["spec"]["group"], desired["acceptedNames"]["plural"])
        # The spec does not change, so its validation rules are not checked again.
        target = replace(self._target(key.cluster, crd, "status"), kind=replace(self._kind, deferred_validator=None))
        batch.update(target, {**crd, "status": desired})

    def _desired_crd(self, batch: Batch, cluster: str, crd: Object) -> Object:
        status = status_of(crd)
        conditions = conditions_of(crd)
        accepted, conflict = self._accepted(batch, cluster, crd)
        now, generation = times.now(), crd["metadata"]["generation"]
        said = [*_name_conditions(conflict, is_true(conditions, "Established")), *_approval_conditions(crd)]
        for condition in said:
            conditions = set_status_condition(conditions, condition, now, generation)
        stored = [version["name"] for version in crd["spec"]["versions"] if version["storage"]]
        return {
            **status,
            "conditions": conditions,
            "acceptedNames": accepted,
            "observedGeneration": generation,
            "storedVersions": list(dict.fromkeys([*(status.get("storedVersions") or []), *stored])),
        }

    def _hold(self, batch: Batch, key: ObjectKey, group: str, plural: str) -> None:
        """Take the lock of a CRD's resource, and guard the revisions of the holders of names.

        The binding controller does the same, so that of two concurrent writers of one name only one succeeds.
        """
        home = ObjectKey(LOGICAL_CLUSTERS, key.cluster, "", wellknown.SINGLETON)
        record = batch.get(home)
        cluster = decode(record.value) if record is not None else None
        locks = read_locks(cluster) if cluster is not None else None
        name = f"{plural}.{group}" if group else plural
        if cluster is not None and locks is not None and plural and locks.get(name) != _LOCK:
            target = Target(self._clusters, key.cluster, "", wellknown.SINGLETON)
            batch.update(target, with_locks(cluster, {**locks, name: _LOCK}), whole=True)
        else:
            batch.guard(RevisionUnchanged(home, record.revision if record is not None else 0))
        others = [each for each, known in self._others(batch, key.cluster, key.name) if known.group == group]
        bindings = [each.key for each in each_record(batch, Scope(API_BINDINGS, key.cluster))]
        batch.guard(*(RevisionUnchanged(each, batch.revision_of(each)) for each in (*others, *bindings)))

    def _accepted(self, view: View, cluster: str, crd: Object) -> tuple[Object, tuple[str, str] | None]:
        """Return the accepted names of a CRD: each requested name unless another kind of its group holds it, else the
        name accepted before.

        Also the conflict, if any, as (reason, message); of several the last one, as in Kubernetes.
        """
        spec = crd["spec"]
        resources, kinds = self._held_names(view, cluster, spec["group"], crd["metadata"]["name"])
        wanted, had = spec["names"], status_of(crd).get("acceptedNames") or _NO_NAMES
        accepted: Object = {**_NO_NAMES, **had}
        conflict: tuple[str, str] | None = None
        for field, held in _FIELDS:
            names = wanted.get(field) or []
            own, taken = had.get(field) or [], resources if held == "resources" else kinds
            listed = [names] if isinstance(names, str) else names
            known = [own] if isinstance(own, str) else own
            refused = [name for name in listed if name not in known and name in taken]
            if refused:
                texts = [f'"{name}" is already in use' for name in refused]
                text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
                conflict = f"{field[0].upper()}{field[1:]}Conflict", text
            else:
                accepted[field] = names
        accepted["categories"] = wanted.get("categories") or []
        return {field: value for field, value in accepted.items() if value or field in _NO_NAMES}, conflict

    def _held_names(self, view: View, cluster: str, group: str, own: str) -> tuple[set[str], set[str]]:
        """Return the resource names and kinds that other holders of the group have."""
        resources: set[str] = set()
        kinds: set[str] = set()
        catalog = self._loopback.core.catalogs.of(view, cluster)
        resources |= {plural for of_group, plural in catalog.unavailable if of_group == group}
        for kind in catalog.kinds.values():
            if kind.group == group and kind.identity != LOCAL:
                resources |= {kind.plural, kind.singular, *kind.short_names}
                kinds |= {kind.kind, kind.list_kind_name}
        for _, known in self._others(view, cluster, own):
            if known.group == group:
                names = known.names
                resources |= {names.get("plural", ""), names.get("singular", ""), *(names.get("shortNames") or [])}
                kinds |= {names.get("kind", ""), names.get("listKind", "")}
        return resources - {""}, kinds - {""}

    def _others(self, view: View, cluster: str, own: str) -> Iterator[tuple[ObjectKey, _DefinitionNames]]:
        """Yield all CRDs but one. Unchanged CRDs are not decoded again; there may be hundreds of large ones."""
        for key, revision in each_revision(view, Scope(CRDS, cluster)):
            if key.name != own:
                yield key, self._definition_names.of(view, key, revision)

    # --- deletion ---

    async def _finalize(self, cluster: str, crd: Object) -> Requeue:
        finalizers = finalizers_of(crd)
        if FINALIZER not in finalizers:
            return None
        names = crd["spec"]
        remaining = RemainingContent()
        type = ResourceType(names["group"], names["names"]["plural"], LOCAL)
        if is_true(conditions_of(crd), "Established"):
            await clear(self._loopback, Scope(type, cluster), remaining)
        if not remaining.is_empty:
            await self._write_progress(cluster, crd)
            return HELD
        metadata = {**crd["metadata"], "finalizers": [each for each in finalizers if each != FINALIZER]}
        try:
            # Through /status, as in Kubernetes, so that policies for definitions do not hold a deletion.
            await self._loopback.update(self._target(cluster, crd, "status"), {**crd, "metadata": metadata})
        except NotFound:
            return None
        return None

    async def _write_progress(self, cluster: str, crd: Object) -> None:
        known = find(conditions_of(crd), "Terminating")
        if known is not None and known.get("reason") == _IN_PROGRESS.reason:
            return
        status = status_of(crd)
        conditions, generation = conditions_of(crd), crd["metadata"]["generation"]
        changed = {**status, "conditions": set_status_condition(conditions, _IN_PROGRESS, times.now(), generation)}
        await self._loopback.try_update(self._target(cluster, crd, "status"), {**crd, "status": changed})

    # --- writes ---

    def _target(self, cluster: str, crd: Object, subresource: str = "") -> Target:
        return Target(self._kind, cluster, "", crd["metadata"]["name"], subresource)


_LOCK = Lock(c=True)
_NO_NAMES: Object = {"plural": "", "kind": ""}
#: Fields of names in the order of their checks, each with the set that it must not collide with.
_FIELDS = (
    ("plural", "resources"),
    ("singular", "resources"),
    ("shortNames", "resources"),
    ("kind", "kinds"),
    ("listKind", "kinds"),
)
_IN_PROGRESS = Condition("Terminating", "True", "InstanceDeletionInProgress", "CustomResource deletion is in progress")
_APPROVAL_REASONS = {
    "approved": ("True", "ApprovedAnnotation"),
    "unapproved": ("False", "UnapprovedAnnotation"),
    "missing": ("False", "MissingAnnotation"),
    "invalid": ("False", "InvalidAnnotation"),
}


def _definition_names(crd: Object) -> _DefinitionNames:
    status = status_of(crd)
    waits = not is_true(conditions_of(crd), "NamesAccepted")
    return _DefinitionNames(crd["spec"]["group"], status.get("acceptedNames") or {}, waits)


def _name_conditions(conflict: tuple[str, str] | None, established: bool) -> list[Condition]:
    if conflict is None:
        accepted = Condition("NamesAccepted", "True", "NoConflicts", "no conflicts found")
        message = "the initial names have been accepted"
        return [accepted, Condition("Established", "True", "InitialNamesAccepted", message)]
    refused = Condition("NamesAccepted", "False", *conflict)
    if established:
        return [refused]
    return [refused, Condition("Established", "False", "NotAccepted", "not all names are accepted")]


def _approval_conditions(crd: Object) -> list[Condition]:
    """Return the API approval condition of a CRD in a protected group; an empty list for other groups."""
    if not is_protected(crd["spec"]["group"]):
        return []
    state, message = approval(crd)
    status, reason = _APPROVAL_REASONS[state]
    return [Condition("KubernetesAPIApprovalPolicyConformant", status, reason, message)]


def _may_free_names(entry: LogEntry) -> bool:
    """Return whether a binding, or its LogicalCluster, may hold fewer names than before an entry."""
    if entry.key.type == API_BINDINGS and entry.operation is Operation.MODIFIED:
        return may_hold_names(entry.before)
    return entry.operation is not Operation.ADDED
