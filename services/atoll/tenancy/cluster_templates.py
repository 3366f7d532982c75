"""Templates of new logical clusters: what one of a type and creator was planned to be, filled in for the next ones.

Such clusters differ in a few values: their name, path, time, uids, Workspace and the names of their bindings.
`ClusterBuilder` plans the first ones in full. Then one is planned with stand-ins for these values, and its encoded
objects, with the values in their place, are those of others, while everything that admission read finds the same.
Invariant: a filled template is byte for byte what planning would give in the same snapshot.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec.structs import replace

from atoll.machinery.apiserver.writing.batch import Batch, Overtaken
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.recorded_batch import Reads, Recorded, RecordedBatch
from atoll.machinery.kcp.apis.apibindings import Export
from atoll.machinery.kcp.manifest import Manifest
from atoll.machinery.kcp.workspaces import workspace
from atoll.machinery.kcp.workspaces.default_bindings import required
from atoll.machinery.kcp.workspaces.workspace import WorkspacePlan
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object, annotations_of, decode
from atoll.machinery.meta.status import ApiError
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.meta.uids import new_uid
from atoll.machinery.storage.contract import Guard, Put, Snapshot
from atoll.tenancy.bound_definitions import SchemaMissing

MAX_BYTES = 4 << 20
#: How often a kind of cluster is planned in full before a template is made of it, and at most where they do not last.
FIRST, MOST = 2, 64
_STAND_IN_TIME = "0987-06-05T04:03:02Z"
#: Values that are the same in JSON as here.
_PLAIN = re.compile(r"[A-Za-z0-9:.-]+")

FindExport = Callable[[Batch, str, str, str], Export | None]
Add = Callable[[Batch, Sequence[Manifest]], None]


class _Write(msgspec.Struct, frozen=True):
    """A new object: its key, and its bytes before and after its revision, both to be filled in."""

    key: ObjectKey
    name: bytes
    head: bytes
    tail: bytes

    def put(self, cluster: str, values: dict[bytes, bytes]) -> Put:
        head, key = self.head % values, self.key
        own = ObjectKey(key.type, cluster, key.namespace, (self.name % values).decode())
        return Put(own, head + self.tail % values, len(head), 0)


class _Template(msgspec.Struct, frozen=True):
    """The objects of a new cluster, the LogicalCluster first, what guards them, and what they depend on."""

    writes: tuple[_Write, ...]
    guards: tuple[Guard, ...]
    reads: Reads


class _Entry(msgspec.Struct):
    """A kind of cluster: how often it was planned in full since it had a template, and its template."""

    size_bytes: int
    seen: int = 0
    needed: int = FIRST
    used: int = 0
    template: _Template | None = None


class ClusterTemplates:
    """Fills in templates, in a cache bounded in bytes."""

    def __init__(self, loopback: Loopback, find_export: FindExport, add: Add) -> None:
        self._loopback, self._find_export, self._add = loopback, find_export, add
        self._entries: LruCache[bytes, _Entry] = LruCache(MAX_BYTES, lambda entry: entry.size_bytes)

    def fill(self, batch: Batch, plan: WorkspacePlan) -> Object | None:
        """Add the objects of a new cluster to a batch without writes; return its LogicalCluster. None without a
        template: they are to be planned."""
        if len(batch) or not plan.parent_cluster or ":" not in plan.path:
            return None
        key = _kind_of(plan)
        entry = self._entries.get(key) or _Entry(len(key))
        if entry.template is None:
            # Weighed again, as its size changes.
            self._entries.drop(key)
            entry.seen += 1
            if entry.seen >= entry.needed:
                entry.seen, entry.used, entry.template = 0, 0, self._made(plan)
            entry.size_bytes = len(key) + _size(entry.template)
            self._entries.put(key, entry)
        if entry.template is None:
            return None
        try:
            cluster = _filled(batch, plan, entry.template)
        except Overtaken:
            entry.needed = FIRST if entry.used >= entry.needed else min(2 * entry.needed, MOST)
            entry.template = None
            return None
        entry.used += cluster is not None
        return cluster

    def _made(self, plan: WorkspacePlan) -> _Template | None:
        """Return a template; None where clusters depend on values that it would fill in."""
        stand_ins = _stand_ins(plan)
        batch = RecordedBatch(self._loopback.core, self._loopback.manager, stand_ins.cluster, _STAND_IN_TIME)
        uids, is_bounded = [], False

        def uid() -> str:
            uids.append(new_uid())
            return uids[-1]

        def find_export(path: str, name: str) -> Export | None:
            nonlocal is_bounded
            found = self._find_export(batch, path, name, stand_ins.path)
            is_bounded = is_bounded or (found is None or bool(found.organization))
            return found

        try:
            self._add(batch, workspace.build(replace(stand_ins, find_export=find_export, new_uid=uid)))
        except (ApiError, SchemaMissing):
            # Planning says so too.
            return None
        recorded = batch.recorded()
        if recorded is None or is_bounded:
            return None
        values = _values(stand_ins, uids)
        return _template(recorded, stand_ins.cluster, {value: name for name, value in values.items()})


def _kind_of(plan: WorkspacePlan) -> bytes:
    """Return everything that a new cluster depends on but for the values that a template fills in."""
    owner = annotations_of(plan.workspace).get(wellknown.OWNER)
    facts = plan.resolution, plan.shard, plan.requested, owner, plan.required_groups, plan.generation
    return msgspec.json.encode(facts)


def _size(template: _Template | None) -> int:
    return sum(len(each.head) + len(each.tail) for each in template.writes) if template is not None else 0


def _stand_ins(plan: WorkspacePlan) -> WorkspacePlan:
    """Return the plan of a cluster that is never made: each of its own values occurs nowhere else."""
    first, second, third, fourth = (f"t{new_uid().replace('-', '')[:20]}" for _ in range(4))
    metadata: Object = {"name": first, "uid": new_uid()}
    if (owner := annotations_of(plan.workspace).get(wellknown.OWNER)) is not None:
        metadata["annotations"] = {wellknown.OWNER: owner}
    return replace(
        plan,
        workspace={"metadata": metadata},
        parent_cluster=second,
        cluster=third,
        path=f"root:{fourth}",
        now=_STAND_IN_TIME,
    )


def _values(plan: WorkspacePlan, uids: Iterable[str]) -> dict[bytes, bytes]:
    """Return the values of a cluster by name: those of its Workspace, its bindings and its objects."""
    metadata = plan.workspace["metadata"]
    bindings = required(plan.cluster, plan.resolution.default_bindings)
    found = {
        "path": plan.path,
        "parent": plan.parent_cluster,
        "cluster": plan.cluster,
        "name": metadata["name"],
        "owner": metadata["uid"],
        "now": plan.now,
        **{f"binding{place}": each.name for place, each in enumerate(bindings)},
        **{f"uid{place}": uid for place, uid in enumerate(uids)},
    }
    return {name.encode(): value.encode() for name, value in found.items()}


def _template(recorded: Recorded, cluster: str, places: dict[bytes, bytes]) -> _Template | None:
    """Return the template of what was planned with stand-ins; None where they decide more than their own places.
    `places` has the name of each stand-in."""
    texts = [stand_in.decode() for stand_in in places]
    if recorded.reads.mention(texts) or any(text in repr(guard) for guard in recorded.guards for text in texts):
        return None
    writes = []
    for each in recorded.mutations:
        if not isinstance(each, Put) or each.key.cluster != cluster:
            return None
        name = _with_places(each.key.name.encode(), places)
        head, tail = _with_places(each.value[: each.hole], places), _with_places(each.value[each.hole :], places)
        writes.append(_Write(each.key, name, head, tail))
    return _Template(tuple(writes), recorded.guards, recorded.reads)


def _with_places(data: bytes, places: dict[bytes, bytes]) -> bytes:
    data = data.replace(b"%", b"%%")
    for stand_in, name in places.items():
        data = data.replace(stand_in, b"%%(%s)s" % name)
    return data


def _filled(batch: Batch, plan: WorkspacePlan, template: _Template) -> Object | None:
    """Add the objects of a template with a cluster's values; return the LogicalCluster. Raises Overtaken."""
    values = _values(plan, [plan.new_uid() for _ in template.writes])
    if not _PLAIN.fullmatch(b"".join(values.values()).decode()):
        return None
    own = ObjectKey(LOGICAL_CLUSTERS, plan.cluster, "", wellknown.SINGLETON)
    puts = [each.put(plan.cluster, values) for each in template.writes]

    def holds(snapshot: Snapshot) -> bool:
        return not snapshot.revision_of(own) and template.reads.hold_in(snapshot)

    batch.add_planned(puts, template.guards, holds)
    return decode(puts[0].value)
