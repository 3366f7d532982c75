"""A snapshot over a dictionary, for tests of identity and access: the contract's promises, no disk.

Every change takes the next revision; `last` rises with each change of a type in a cluster and over all
clusters, also by deletions. Snapshots taken earlier keep showing what they showed.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

import msgspec

from atoll.machinery.meta.names import CORE, ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object
from atoll.machinery.storage.contract import ClusterRoute, Gate, GateState, Position, Record, Scope, Usage
from atoll.machinery.storage.limits import Limit, TotalObjects

RBAC = "rbac.authorization.k8s.io"
TYPES = {
    "ClusterRole": ResourceType(RBAC, "clusterroles", CORE),
    "ClusterRoleBinding": ResourceType(RBAC, "clusterrolebindings", CORE),
    "Role": ResourceType(RBAC, "roles", CORE),
    "RoleBinding": ResourceType(RBAC, "rolebindings", CORE),
    "LogicalCluster": ResourceType("core.kcp.io", "logicalclusters", CORE),
    "APIBinding": ResourceType("apis.kcp.io", "apibindings", CORE),
    "APIExport": ResourceType("apis.kcp.io", "apiexports", CORE),
    "ServiceAccount": ResourceType("", "serviceaccounts", CORE),
    "Secret": ResourceType("", "secrets", CORE),
    "ConfigMap": ResourceType("", "configmaps", CORE),
}


_SINGLETON = {"name": "cluster"}


class FakeStore:
    """Objects by key. It is the snapshot of its present state; `reads` counts calls."""

    def __init__(self) -> None:
        self.revision = 1
        self.records: dict[ObjectKey, Record] = {}
        self.last_revisions: dict[tuple[ResourceType, str], int] = {}
        self.reads: Counter[str] = Counter()
        self.replicas = Published()

    def put(self, cluster: str, obj: Object) -> Object:
        """Write an object of one of TYPES (by its kind) into a cluster."""
        key = self._key(cluster, obj["kind"], obj["metadata"])
        revision = self._touch(key)
        self.records[key] = Record(key, revision, msgspec.json.encode(obj))
        return obj

    def delete(self, cluster: str, kind: str, name: str, namespace: str = "") -> None:
        key = self._key(cluster, kind, {"name": name, "namespace": namespace})
        del self.records[key]
        self._touch(key)

    def frozen(self) -> FakeStore:
        """A snapshot that later changes do not affect."""
        return copy.deepcopy(self)

    def _key(self, cluster: str, kind: str, metadata: Object) -> ObjectKey:
        return ObjectKey(TYPES[kind], cluster, metadata.get("namespace", ""), metadata["name"])

    def _touch(self, key: ObjectKey) -> int:
        self.revision += 1
        self.last_revisions[key.type, key.cluster] = self.last_revisions[key.type, ""] = self.revision
        return self.revision

    # --- the snapshot ---

    def get(self, key: ObjectKey) -> Record | None:
        self.reads["get"] += 1
        return self.records.get(key)

    def revision_of(self, key: ObjectKey) -> int:
        record = self.records.get(key)
        return record.revision if record is not None else 0

    def last(self, type: ResourceType, cluster: str) -> int:
        self.reads["last"] += 1
        return self.last_revisions.get((type, cluster), 0)

    def lasts(self, types: Sequence[ResourceType], cluster: str) -> tuple[int, ...]:
        return tuple(self.last(type, cluster) for type in types)

    def stamp(self, types: Sequence[ResourceType]) -> Hashable:
        return self.lasts(types, "")

    def gate(self, cluster: str) -> Gate:
        stands = self.revision_of(self._key(cluster, "LogicalCluster", _SINGLETON))
        return Gate(GateState.OPEN, 1) if stands or not self.replicas.shard_of(cluster) else Gate()

    def limits(self, type: ResourceType, cluster: str, namespace: str) -> list[Limit]:
        return []

    def total(self, cluster: str) -> TotalObjects:
        return TotalObjects(0, 0)

    def usage(self, cluster: str) -> list[Usage]:
        return []

    def scan(self, scope: Scope, after: Position | None = None, limit: int = 500) -> list[Record]:
        self.reads["scan"] += 1
        found = sorted(
            (Position(k.cluster, k.namespace, k.name), record)
            for k, record in self.records.items()
            if k.type == scope.type and scope.cluster in ("", k.cluster) and scope.namespace in ("", k.namespace)
        )
        return [record for position, record in found if after is None or position > after][:limit]

    def revisions(self, scope: Scope, after: Position | None = None, limit: int = 500) -> list[tuple[ObjectKey, int]]:
        return [(record.key, record.revision) for record in self.scan(scope, after, limit)]

    def owned(self, cluster: str, uid: str) -> list[ObjectKey]:
        return []

    def all_owned(self) -> Iterator[ObjectKey]:
        return iter(())

    def labelled(
        self, label: str, value: str, type: ResourceType | None = None, limit: int = 0, after: ObjectKey | None = None
    ) -> list[ObjectKey]:
        return []


class Published:
    """Objects that other shards published to a FakeStore: their clusters by shard, and rows as `put` writes them."""

    def __init__(self) -> None:
        self._routes: dict[str, str] = {}
        self._rows: FakeStore | None = None
        self.count = 0

    @property
    def rows(self) -> FakeStore:
        if self._rows is None:
            self._rows = FakeStore()
            self._rows.revision = 1000
        return self._rows

    @property
    def empty(self) -> bool:
        return not self._routes

    def route(self, cluster: str, shard: str) -> None:
        self._routes[cluster] = shard
        self.count += 1

    def put(self, cluster: str, obj: Object) -> None:
        self.rows.put(cluster, obj)
        self.count += 1

    def delete(self, cluster: str, kind: str, name: str) -> None:
        self.rows.delete(cluster, kind, name)
        self.count += 1

    def shard_of(self, cluster: str) -> str:
        return self._routes.get(cluster, "")

    def get(self, key: ObjectKey) -> Record | None:
        return self.rows.get(key) if key.cluster in self._routes else None

    def revision_of(self, key: ObjectKey) -> int:
        return self.rows.revision_of(key) if key.cluster in self._routes else 0

    def last(self, type: ResourceType, cluster: str) -> int:
        return self.rows.last(type, cluster) if not cluster or cluster in self._routes else 0

    def scan(self, scope: Scope, after: Position | None = None, limit: int = 500) -> list[Record]:
        return [each for each in self.rows.scan(scope, after, limit) if each.key.cluster in self._routes]

    def revisions(self, scope: Scope, after: Position | None = None, limit: int = 500) -> list[tuple[ObjectKey, int]]:
        return [(record.key, record.revision) for record in self.scan(scope, after, limit)]

    def labelled(
        self, label: str, value: str, type: ResourceType | None = None, limit: int = 0, after: ObjectKey | None = None
    ) -> list[ObjectKey]:
        return []

    def route_of(self, cluster: str) -> ClusterRoute | None:
        shard = self.shard_of(cluster)
        return ClusterRoute(cluster, shard) if shard else None

    # Tests of identity and access read no rows by their origin.

    def rows_of(self, origin: str, scope: Scope, after: Position | None = None, limit: int = 500) -> list[Record]:
        raise NotImplementedError

    def row_of(self, origin: str, key: ObjectKey) -> tuple[Record, int] | None:
        raise NotImplementedError

    def types_of(self, origin: str, cluster: str) -> list[ResourceType]:
        raise NotImplementedError

    def outdated(
        self, origin: str, generation: int, after: ObjectKey | None = None, limit: int = 1000
    ) -> tuple[list[ObjectKey], ObjectKey | None]:
        raise NotImplementedError


def role(name: str, *rules: Object, namespace: str = "") -> Object:
    """A ClusterRole, or a Role where a namespace is given."""
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"kind": "Role" if namespace else "ClusterRole", "metadata": metadata, "rules": list(rules)}


def rule(verbs: str, resources: str, groups: str = ",", names: str = "") -> Object:
    """A PolicyRule of comma separated texts; groups "," includes the core group."""
    made: Object = {
        "verbs": verbs.split(","),
        "apiGroups": [""] if groups == "," else groups.split(","),
        "resources": resources.split(","),
    }
    return {**made, "resourceNames": names.split(",")} if names else made


def urls(verbs: str, paths: str) -> Object:
    return {"verbs": verbs.split(","), "nonResourceURLs": paths.split(",")}


def subject(text: str) -> Object:
    """`User:alice`, `Group:devs`, `ServiceAccount:namespace/name`."""
    kind, _, name = text.partition(":")
    if kind != "ServiceAccount":
        return {"kind": kind, "name": name, "apiGroup": RBAC}
    namespace, _, name = name.rpartition("/")
    return {"kind": kind, "name": name, **({"namespace": namespace} if namespace else {})}


def binding(name: str, role_name: str, *subjects: str, namespace: str = "", role_kind: str = "ClusterRole") -> Object:
    """A ClusterRoleBinding, or a RoleBinding where a namespace is given."""
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"kind": role_kind, "name": role_name, "apiGroup": RBAC},
        "subjects": [subject(text) for text in subjects],
    }


def logical_cluster(phase: str = "Ready", **annotations: str) -> Object:
    metadata = {"name": "cluster", "annotations": {k.replace("__", "/"): v for k, v in annotations.items()}}
    return {"kind": "LogicalCluster", "metadata": metadata, "status": {"phase": phase}}


def bootstrap(store: FakeStore) -> None:
    """The part of kcp's bootstrap policy that tests need, in system:admin."""
    everything = role("cluster-admin", rule("*", "*", "*"), urls("*", "*"))
    store.put("system:admin", everything)
    store.put("system:admin", role("system:kcp:workspace:access", urls("access", "/")))
    discovery = role("system:discovery", urls("get", "/api,/api/*,/apis,/apis/*,/version"))
    store.put("system:admin", discovery)
    store.put("system:admin", role("view", rule("get,list,watch", "configmaps")))
    store.put("system:admin", binding("cluster-admin", "cluster-admin", "Group:system:masters"))
    store.put("system:admin", binding("system:kcp:admin:cluster-admin", "cluster-admin", "Group:system:kcp:admin"))
    store.put("system:admin", binding("system:discovery", "system:discovery", "Group:system:authenticated"))


def workspace(store: FakeStore, name: str, owner: str = "alice", phase: str = "Ready") -> None:
    """A logical cluster with kcp's workspace-admin binding."""
    store.put(name, logical_cluster(phase))
    store.put(name, binding("workspace-admin", "cluster-admin", f"User:{owner}"))
