"""CustomResourceDefinitions: names accepted, established, and emptied before they go.

Watches: CRDs, and deletions of custom objects (a CRD may wait for the last). Writes: CRD status, deletions of
instances, the clean-up finalizer. Converges because names are judged from all CRDs and bound APIs of the cluster
each time; a name that becomes free brings the losers back.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from atoll.controllers.content import Remaining, clear
from atoll.machinery.apiserver.loopback import Loopback, Target
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import times
from atoll.machinery.meta.conditions import Condition, find, is_true, set_status_condition
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import LOCAL, ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.status import Conflict, NotFound
from atoll.machinery.meta.types import CRDS
from atoll.machinery.schema.crd import approval, is_protected
from atoll.machinery.storage.contract import LogEntry, Operation, Position, Scope, Snapshot

FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
AGAIN_S = 5.0
#: Definitions whose names are remembered.
MAX_KNOWN = 8192
PAGE = 500


class CustomResourceDefinitionController:
    """Key: (cluster, CRD name)."""

    name = "customresourcedefinition"
    workers = 2

    def __init__(self, loopback: Loopback, kind: Kind) -> None:
        self._loopback, self._kind = loopback, kind
        self._known: LruCache[ObjectKey, tuple[int, str, Object]] = LruCache(MAX_KNOWN)

    def watches(self, type: ResourceType) -> bool:
        return type == CRDS or type.identity == LOCAL

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        key = entry.key
        if key.type != CRDS:
            if entry.operation is Operation.DELETED:
                yield key.cluster, f"{key.type.resource}.{key.type.group}"
        elif entry.operation is Operation.DELETED:
            # Its names are free: whoever lost them before is judged anew.
            for crd in self._loopback.each(Scope(CRDS, key.cluster)):
                yield key.cluster, crd["metadata"]["name"]
        else:
            yield key.cluster, key.name

    def all_keys(self) -> Iterable[Hashable]:
        for crd in self._loopback.each(Scope(CRDS)):
            yield crd["metadata"]["annotations"]["kcp.io/cluster"], crd["metadata"]["name"]

    async def reconcile(self, key: tuple[str, str]) -> float | None:
        cluster, name = key
        crd = self._loopback.get(CRDS, cluster, "", name)
        if crd is None:
            return None
        if crd["metadata"].get("deletionTimestamp"):
            return await self._finalize(cluster, crd)
        await self._judge_names(cluster, crd)
        return None

    # --- names ---

    async def _judge_names(self, cluster: str, crd: Object) -> None:
        status = crd.get("status") or {}
        conditions = status.get("conditions") or []
        accepted, conflict = self._accepted(cluster, crd)
        now, generation = times.now(), crd["metadata"]["generation"]
        said = [*_name_conditions(conflict, is_true(conditions, "Established")), *_approval_conditions(crd)]
        for condition in said:
            conditions = set_status_condition(conditions, condition, now, generation)
        stored = [version["name"] for version in crd["spec"]["versions"] if version["storage"]]
        changed = {
            **status,
            "conditions": conditions,
            "acceptedNames": accepted,
            "observedGeneration": generation,
            "storedVersions": list(dict.fromkeys([*(status.get("storedVersions") or []), *stored])),
        }
        if changed != status:
            await self._write_status(cluster, crd, changed)

    def _accepted(self, cluster: str, crd: Object) -> tuple[Object, tuple[str, str] | None]:
        """The names a CRD gets: each that no other kind of its group holds, and else the one it had.

        Also the conflict to tell, if any: (reason, message); of several the last, as Kubernetes tells them.
        """
        spec = crd["spec"]
        resources, kinds = self._held_names(cluster, spec["group"], crd["metadata"]["name"])
        wanted, had = spec["names"], (crd.get("status") or {}).get("acceptedNames") or _NO_NAMES
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

    def _held_names(self, cluster: str, group: str, own: str) -> tuple[set[str], set[str]]:
        """Resource names and kinds that others of the group have been accepted with."""
        resources: set[str] = set()
        kinds: set[str] = set()
        with self._loopback.store.snapshot() as snapshot:
            for kind in self._loopback.core.catalogs.of(snapshot, cluster).kinds.values():
                if kind.group == group and kind.identity != LOCAL:
                    resources |= {kind.plural, kind.singular, *kind.short_names}
                    kinds |= {kind.kind, kind.list_kind_name}
        for of_group, names in self._others(cluster, own):
            if of_group != group:
                continue
            resources |= {names.get("plural", ""), names.get("singular", ""), *(names.get("shortNames") or [])}
            kinds |= {names.get("kind", ""), names.get("listKind", "")}
        return resources - {""}, kinds - {""}

    def _others(self, cluster: str, own: str) -> Iterator[tuple[str, Object]]:
        """Group and accepted names of all definitions but one. What was not written since is not read again: it may
        be hundreds of large ones."""
        after: Position | None = None
        while True:
            with self._loopback.store.snapshot() as snapshot:
                page = snapshot.revisions(Scope(CRDS, cluster), after, PAGE)
                others = [self._names(snapshot, *each) for each in page if each[0].name != own]
            yield from others
            if len(page) < PAGE:
                return
            last = page[-1][0]
            after = Position(last.cluster, last.namespace, last.name)

    def _names(self, snapshot: Snapshot, key: ObjectKey, revision: int) -> tuple[str, Object]:
        found = self._known.get(key)
        if found is None or found[0] != revision:
            record = snapshot.get(key)
            assert record is not None, "listed in the same snapshot"
            crd = decode(record.value)
            found = revision, crd["spec"]["group"], (crd.get("status") or {}).get("acceptedNames") or {}
            self._known.put(key, found)
        return found[1], found[2]

    # --- deletion ---

    async def _finalize(self, cluster: str, crd: Object) -> float | None:
        finalizers = crd["metadata"].get("finalizers") or []
        if FINALIZER not in finalizers:
            return None
        names = crd["spec"]
        remaining = Remaining()
        type = ResourceType(names["group"], names["names"]["plural"], LOCAL)
        if is_true((crd.get("status") or {}).get("conditions") or [], "Established"):
            await clear(self._loopback, Scope(type, cluster), remaining)
        if not remaining.is_empty:
            await self._tell_progress(cluster, crd)
            return AGAIN_S
        metadata = {**crd["metadata"], "finalizers": [each for each in finalizers if each != FINALIZER]}
        try:
            await self._loopback.update(self._target(cluster, crd), {**crd, "metadata": metadata})
        except NotFound:
            return None
        return None

    async def _tell_progress(self, cluster: str, crd: Object) -> None:
        known = find((crd.get("status") or {}).get("conditions") or [], "Terminating")
        if known is not None and known.get("reason") == _IN_PROGRESS.reason:
            return
        status = crd.get("status") or {}
        conditions, generation = status.get("conditions") or [], crd["metadata"]["generation"]
        changed = {**status, "conditions": set_status_condition(conditions, _IN_PROGRESS, times.now(), generation)}
        await self._write_status(cluster, crd, changed)

    # --- writes ---

    def _target(self, cluster: str, crd: Object, subresource: str = "") -> Target:
        return Target(self._kind, cluster, "", crd["metadata"]["name"], subresource)

    async def _write_status(self, cluster: str, crd: Object, status: Object) -> None:
        try:
            await self._loopback.update(self._target(cluster, crd, "status"), {**crd, "status": status})
        except (Conflict, NotFound):
            # Its newer state has an entry in the log, which brings this key back.
            return


_NO_NAMES: Object = {"plural": "", "kind": ""}
#: Names in the order they are judged, and among which names of other kinds.
_FIELDS = (
    ("plural", "resources"), ("singular", "resources"), ("shortNames", "resources"), ("kind", "kinds"),
    ("listKind", "kinds"),
)  # fmt: skip
_IN_PROGRESS = Condition(
    "Terminating", "True", "InstanceDeletionInProgress", "CustomResource deletion is in progress"
)
_APPROVAL_REASONS = {
    "approved": ("True", "ApprovedAnnotation"), "unapproved": ("False", "UnapprovedAnnotation"),
    "missing": ("False", "MissingAnnotation"), "invalid": ("False", "InvalidAnnotation"),
}  # fmt: skip


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
    """Whether a definition in a group of Kubernetes says who approved it; nothing for other groups."""
    if not is_protected(crd["spec"]["group"]):
        return []
    state, message = approval(crd)
    status, reason = _APPROVAL_REASONS[state]
    return [Condition("KubernetesAPIApprovalPolicyConformant", status, reason, message)]
