"""CustomResourceDefinitions: names accepted, established, and emptied before they go.

Watches: CRDs, and deletions of custom objects (a CRD may wait for the last). Writes: CRD status, deletions of
instances, the clean-up finalizer. Converges because names are judged from all CRDs and bound APIs of the cluster
each time; a name that becomes free brings the losers back.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from atoll.controllers.content import Remaining, clear
from atoll.machinery.apiserver.catalog import CRDS
from atoll.machinery.apiserver.loopback import Loopback, Target
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import times
from atoll.machinery.meta.conditions import Condition, find, is_true, set_status_condition
from atoll.machinery.meta.names import LOCAL, ResourceType
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import Conflict, NotFound
from atoll.machinery.storage.contract import LogEntry, Operation, Scope

FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
AGAIN_S = 5.0


class CustomResourceDefinitionController:
    """Key: (cluster, CRD name)."""

    name = "customresourcedefinition"
    workers = 2

    def __init__(self, loopback: Loopback, kind: Kind) -> None:
        self._loopback, self._kind = loopback, kind

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
        conflict = self._conflict(cluster, crd)
        now = times.now()
        for condition in _name_conditions(conflict, is_true(conditions, "Established")):
            conditions = set_status_condition(conditions, condition, now)
        stored = [version["name"] for version in crd["spec"]["versions"] if version["storage"]]
        changed = {
            **status,
            "conditions": conditions,
            "acceptedNames": crd["spec"]["names"] if conflict is None else status.get("acceptedNames", _NO_NAMES),
            "storedVersions": list(dict.fromkeys([*(status.get("storedVersions") or []), *stored])),
        }
        if changed != status:
            await self._write_status(cluster, crd, changed)

    def _conflict(self, cluster: str, crd: Object) -> tuple[str, str] | None:
        """The first name of a CRD that another kind of its group holds: (reason, name)."""
        spec = crd["spec"]
        held = self._held_names(cluster, spec["group"], crd["metadata"]["name"])
        names = spec["names"]
        checks = [
            ("PluralConflict", names["plural"]),
            ("SingularConflict", names.get("singular", "")),
            *(("ShortNamesConflict", short) for short in names.get("shortNames") or []),
        ]
        for reason, name in checks:
            if name and name in held[0]:
                return reason, name
        for reason, name in (("KindConflict", names["kind"]), ("ListKindConflict", names.get("listKind", ""))):
            if name and name in held[1]:
                return reason, name
        return None

    def _held_names(self, cluster: str, group: str, own: str) -> tuple[set[str], set[str]]:
        """Resource names and kinds that others of the group have been accepted with."""
        resources: set[str] = set()
        kinds: set[str] = set()
        with self._loopback.store.snapshot() as snapshot:
            for kind in self._loopback.core.catalogs.of(snapshot, cluster).kinds.values():
                if kind.group == group and kind.identity != LOCAL:
                    resources |= {kind.plural, kind.singular, *kind.short_names}
                    kinds |= {kind.kind, kind.list_kind_name}
        for crd in self._loopback.each(Scope(CRDS, cluster)):
            if crd["metadata"]["name"] == own or crd["spec"]["group"] != group:
                continue
            names = (crd.get("status") or {}).get("acceptedNames") or {}
            resources |= {names.get("plural", ""), names.get("singular", ""), *(names.get("shortNames") or [])}
            kinds |= {names.get("kind", ""), names.get("listKind", "")}
        return resources - {""}, kinds - {""}

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
        status = crd.get("status") or {}
        conditions = status.get("conditions") or []
        known = find(conditions, "Terminating")
        if known is not None and known.get("reason") == "InstanceDeletionInProgress":
            return
        message = "CustomResource deletion is in progress"
        condition = Condition("Terminating", "True", "InstanceDeletionInProgress", message)
        changed = {**status, "conditions": set_status_condition(conditions, condition, times.now())}
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


def _name_conditions(conflict: tuple[str, str] | None, established: bool) -> list[Condition]:
    if conflict is None:
        accepted = Condition("NamesAccepted", "True", "NoConflicts", "no conflicts found")
        message = "the initial names have been accepted"
        return [accepted, Condition("Established", "True", "InitialNamesAccepted", message)]
    reason, name = conflict
    refused = Condition("NamesAccepted", "False", reason, f'"{name}" is already in use')
    if established:
        return [refused]
    return [refused, Condition("Established", "False", "NotAccepted", "not all names are accepted")]
