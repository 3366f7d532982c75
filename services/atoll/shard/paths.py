"""Workspace paths to logical clusters, from the shard's own rows.

A path starts at a cluster name (`root` or an id), at a user's home, or at the path of a logical cluster that no
Workspace owns, and follows Workspace names downward. What was found is kept in
a bounded cache together with the revisions of the Workspaces it went through, and these are checked in the
request's own snapshot: a renamed, moved or deleted workspace is never found by memory.
"""

from __future__ import annotations

import msgspec

from atoll.machinery.apiserver.call import View
from atoll.machinery.meta.hashes import home_cluster_name, root_path_label
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ObjectKey, ResourceType, is_cluster_name
from atoll.machinery.meta.paths import HOME
from atoll.machinery.meta.types import LOGICAL_CLUSTERS

MAX_PATHS = 8192
MAX_DEPTH = 64


class _Spec(msgspec.Struct, rename={"url": "URL"}):
    cluster: str = ""
    url: str = ""
    mount: msgspec.Raw = msgspec.Raw()


class _Status(msgspec.Struct):
    phase: str = ""


class _Workspace(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_decoder = msgspec.json.Decoder(_Workspace)


class Mounted(msgspec.Struct, frozen=True):
    """What a path ends in that no logical cluster stands behind."""

    url: str
    ready: bool


class Step(msgspec.Struct, frozen=True):
    """One Workspace on a path: where it stands, at which revision it was read, where it leads."""

    key: ObjectKey
    revision: int
    cluster: str


def _root(names: list[str]) -> tuple[str, list[str]]:
    """The cluster a path begins at, and the names below it. `user:<name>` is that user's home."""
    if names[0] == HOME and len(names) > 1:
        return home_cluster_name(names[1]), names[2:]
    return names[0], names[1:]


class PathIndex:
    """Resolves paths. `workspaces` is the type under which Workspaces are stored (it carries an identity)."""

    def __init__(self, workspaces: ResourceType) -> None:
        self._workspaces = workspaces
        self._found: LruCache[str, tuple[Step, ...]] = LruCache(MAX_PATHS)

    def resolve(self, snapshot: View, workspace: str) -> str | None:
        """The cluster of a path; a single name or `system:...` is itself. None if the path leads nowhere."""
        if ":" not in workspace or workspace.startswith("system:"):
            # Nothing else ever stands in a key: not even masters write where no cluster can be.
            return workspace if is_cluster_name(workspace) else None
        known = self._found.get(workspace)
        if known is not None and all(snapshot.revision_of(step.key) == step.revision for step in known):
            return known[-1].cluster
        steps = self._walk(snapshot, workspace.split(":"))
        if steps is None:
            return None
        if not steps:
            return _root(workspace.split(":"))[0]
        self._found.put(workspace, steps)
        return steps[-1].cluster

    def mounted(self, snapshot: View, workspace: str) -> Mounted | None:
        """The mount that a path ends in. What is below a mount is nothing of ours, and not found."""
        above, _, name = workspace.rpartition(":")
        cluster = self.resolve(snapshot, above) if above and not workspace.startswith("system:") else None
        record = snapshot.get(ObjectKey(self._workspaces, cluster, "", name)) if cluster else None
        if record is None:
            return None
        found = _decoder.decode(record.value)
        if not found.spec.mount or found.spec.cluster:
            return None
        return Mounted(found.spec.url, bool(found.spec.url) and found.status.phase == "Ready")

    def _walk(self, snapshot: View, names: list[str]) -> tuple[Step, ...] | None:
        if len(names) > MAX_DEPTH:
            return None
        found = self._below(snapshot, *_root(names))
        return self._below_annotated(snapshot, names) if found is None else found

    def _below_annotated(self, snapshot: View, names: list[str]) -> tuple[Step, ...] | None:
        """By the path that a logical cluster without an owner says it has."""
        for count in range(2, len(names) + 1):
            path = ":".join(names[:count])
            for key in snapshot.labelled(*root_path_label(path)):
                root = Step(key, snapshot.revision_of(key), key.cluster)
                below = self._below(snapshot, key.cluster, names[count:])
                if key.type == LOGICAL_CLUSTERS and below is not None:
                    return root, *below
        return None

    def _below(self, snapshot: View, cluster: str, names: list[str]) -> tuple[Step, ...] | None:
        steps = []
        for name in names:
            key = ObjectKey(self._workspaces, cluster, "", name)
            record = snapshot.get(key)
            if record is None:
                return None
            cluster = _decoder.decode(record.value).spec.cluster
            if not cluster:
                return None
            steps.append(Step(key, record.revision, cluster))
        return tuple(steps)
