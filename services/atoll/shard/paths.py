"""Workspace paths to logical clusters, from the shard's own rows.

A path starts at a cluster name (`root` or an id) and follows Workspace names downward. What was found is kept in
a bounded cache together with the revisions of the Workspaces it went through, and these are checked in the
request's own snapshot: a renamed, moved or deleted workspace is never found by memory.
"""

from __future__ import annotations

import msgspec

from atoll.machinery.apiserver.call import View
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ObjectKey, ResourceType

MAX_PATHS = 8192
MAX_DEPTH = 64


class _Spec(msgspec.Struct):
    cluster: str = ""


class _Workspace(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)


_decoder = msgspec.json.Decoder(_Workspace)


class Step(msgspec.Struct, frozen=True):
    """One Workspace on a path: where it stands, at which revision it was read, where it leads."""

    key: ObjectKey
    revision: int
    cluster: str


class PathIndex:
    """Resolves paths. `workspaces` is the type under which Workspaces are stored (it carries an identity)."""

    def __init__(self, workspaces: ResourceType) -> None:
        self._workspaces = workspaces
        self._found: LruCache[str, tuple[Step, ...]] = LruCache(MAX_PATHS)

    def resolve(self, snapshot: View, workspace: str) -> str | None:
        """The cluster of a path; a single name or `system:...` is itself. None if the path leads nowhere."""
        if ":" not in workspace or workspace.startswith("system:"):
            return workspace
        known = self._found.get(workspace)
        if known is not None and all(snapshot.revision_of(step.key) == step.revision for step in known):
            return known[-1].cluster
        steps = self._walk(snapshot, workspace.split(":"))
        if steps is None:
            return None
        self._found.put(workspace, steps)
        return steps[-1].cluster

    def _walk(self, snapshot: View, names: list[str]) -> tuple[Step, ...] | None:
        cluster, steps = names[0], []
        if len(names) > MAX_DEPTH:
            return None
        for name in names[1:]:
            key = ObjectKey(self._workspaces, cluster, "", name)
            record = snapshot.get(key)
            if record is None:
                return None
            cluster = _decoder.decode(record.value).spec.cluster
            if not cluster:
                return None
            steps.append(Step(key, record.revision, cluster))
        return tuple(steps)
