"""Resolve workspace paths to logical clusters, from local rows and replicas.

The pipeline, `controllers.facts` and the front proxy call it. A path starts at a cluster name (`root` or an id), at a
user's home, or at the path of a logical cluster without an owning Workspace, and follows Workspace names downward on
any shard. Results are cached (bounded) with the revisions of their Workspaces. Invariant: these are checked in the
request's snapshot, so that a renamed, moved or deleted workspace is never resolved from the cache. A path within this
shard reads no replicas. On a shard that does not keep the rows of every workspace, a path that is not found may be
sought (`require_none`).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.federation.cluster_searches import ClusterSearches
from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.meta.hashes import home_cluster_name, root_cluster_name, root_path_label
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ROOT, ObjectKey, ResourceType, is_cluster_name, is_workspace_path
from atoll.machinery.meta.partial import Phase
from atoll.machinery.meta.paths import HOME
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.meta.wellknown import SINGLETON

MAX_PATHS = 8192
MAX_DEPTH = 64


class Mounted(msgspec.Struct, frozen=True):
    """The mount at the end of a path, which has no logical cluster."""

    url: str
    ready: bool


class _Spec(msgspec.Struct, frozen=True, rename={"url": "URL"}):
    cluster: str = ""
    url: str = ""
    mount: msgspec.Raw = msgspec.Raw()


class WorkspaceTarget(msgspec.Struct, frozen=True):
    """The fields of a Workspace that lead to its cluster or mount."""

    spec: _Spec = _Spec()
    status: Phase = Phase()

    def mounted(self) -> Mounted | None:
        """Return the mount; None for a Workspace with a cluster, or without a mount."""
        if not self.spec.mount or self.spec.cluster:
            return None
        return Mounted(self.spec.url, bool(self.spec.url) and self.status.phase == "Ready")


_decoder = msgspec.json.Decoder(WorkspaceTarget)


class Unavailable(msgspec.Struct, frozen=True):
    """The unavailable Workspace at the end of a path."""


class Step(msgspec.Struct, frozen=True):
    """One Workspace on a path: its key, the revision it was read at, its target, and whether it is unavailable."""

    key: ObjectKey
    revision: int
    cluster: str
    unavailable: bool = False


class ResolvedPath(msgspec.Struct, frozen=True):
    """Where a path leads. `remote`: to another shard's cluster; `unavailable`: to one that cannot be used."""

    cluster: str
    remote: bool = False
    unavailable: bool = False


class _CachedPath(msgspec.Struct, frozen=True):
    """The Workspaces of a path. `is_local`: every row is local; `target` is set if it is a local cluster as well."""

    steps: tuple[Step, ...]
    is_local: bool
    target: ResolvedPath | None


def _root(names: list[str]) -> tuple[str, list[str]]:
    """Return the first cluster of a path, and the names below it. `user:<name>` is that user's home."""
    if names[0] == HOME and len(names) > 1:
        return home_cluster_name(names[1]), names[2:]
    return names[0], names[1:]


class PathIndex:
    """Resolves paths. `workspaces` is the type under which Workspaces are stored (it carries an identity); `searches`
    finds paths in rows that are not kept, None where all are."""

    def __init__(self, workspaces: ResourceType, searches: ClusterSearches | None = None) -> None:
        self._workspaces, self._searches = workspaces, searches
        #: The types of the rows that paths are resolved by.
        self.types = (workspaces, LOGICAL_CLUSTERS)
        self._found: LruCache[str, _CachedPath] = LruCache(MAX_PATHS)

    def resolve(self, snapshot: View, workspace: str) -> str | None:
        """Return the cluster of a path; a single name or `system:...` is itself. None for an unknown path."""
        target = self.find(snapshot, workspace)
        return target.cluster if target is not None else None

    def find(self, snapshot: View, workspace: str) -> ResolvedPath | None:
        """Return the cluster as `resolve` does, with the state of its Workspace; a single name is not looked up."""
        if ":" not in workspace or workspace.startswith("system:"):
            # Only valid names may be part of a key, for system:masters too.
            return ResolvedPath(workspace) if is_cluster_name(workspace) else None
        cached = self._found.get(workspace)
        if cached is not None and _holds(snapshot, cached):
            return cached.target or _resolved(snapshot, cached.steps[-1])
        view = federated(snapshot)
        steps = self._walk(view, workspace.split(":"))
        if steps is None:
            return None
        if not steps:
            return _resolved(view, Step(_NOWHERE, 0, _root(workspace.split(":"))[0]))
        target = _resolved(view, steps[-1])
        is_local = all(snapshot.revision_of(step.key) == step.revision for step in steps)
        stands = bool(snapshot.gate(target.cluster).generation)
        self._found.put(workspace, _CachedPath(steps, is_local, target if is_local and stands else None))
        return target

    def require_none(self, workspace: str) -> None:
        """Return if a path or cluster that is not found is on no shard. Raises SearchPending, ServiceUnavailable."""
        if self._searches is not None and _is_sought(workspace):
            self._searches.require_none(workspace)

    def seek(self, workspace: str) -> None:
        """Return once a path that is not found was sought, also if not every shard was read. Raises SearchPending."""
        if self._searches is not None and _is_sought(workspace):
            self._searches.was_read(workspace)

    def awaited(self, snapshot: View, workspace: str) -> tuple[str, str] | None:
        """Return cluster and name of the Workspace whose change would change the target of a path.

        It is the first missing one, or the last. None for a path without Workspaces.
        """
        if ":" not in workspace or workspace.startswith("system:"):
            return None
        view = federated(snapshot)
        names = self._start(view, workspace.split(":")[:MAX_DEPTH])[1]
        where = ""
        for place, (cluster, _) in enumerate(self.followed(view, workspace)):
            if place < len(names):
                where, last = cluster, names[place]
        return (where, last) if where else None

    def mounted(self, snapshot: View, workspace: str) -> Mounted | None:
        """Return the mount at the end of a path in the view. Paths below a mount are not found."""
        found = self._last(snapshot, workspace)
        return found.mounted() if found is not None else None

    def followed(self, snapshot: View, workspace: str) -> Iterator[tuple[str, str]]:
        """Yield the clusters on a path as far as Workspaces exist, each with the remaining names (joined); the first
        cluster may be missing."""
        cluster, names = self._start(snapshot, workspace.split(":")[:MAX_DEPTH])
        yield cluster, ":".join(names)
        for place, name in enumerate(names, start=1):
            below = self._below(snapshot, cluster, [name])
            if below is None:
                return
            cluster = below[-1].cluster
            yield cluster, ":".join(names[place:])

    def _last(self, snapshot: View, workspace: str) -> WorkspaceTarget | None:
        """Return the Workspace of the last name of a path."""
        above, _, name = workspace.rpartition(":")
        cluster = self.resolve(snapshot, above) if above and not workspace.startswith("system:") else None
        record = snapshot.get(ObjectKey(self._workspaces, cluster, "", name)) if cluster else None
        return _decoder.decode(record.value) if record is not None else None

    def _walk(self, snapshot: View, names: list[str]) -> tuple[Step, ...] | None:
        if len(names) > MAX_DEPTH:
            return None
        found = self._below(snapshot, *_root(names))
        return self._below_annotated(snapshot, names) if found is None else found

    def _start(self, snapshot: View, names: list[str]) -> tuple[str, list[str]]:
        """Return the first cluster of a path, and the names below it; a root if there is no cluster of that name."""
        first = _root(names)
        if len(names) > 1 and not snapshot.revision_of(ObjectKey(LOGICAL_CLUSTERS, first[0], "", SINGLETON)):
            return next(((key.cluster, rest) for key, rest in self._roots(snapshot, names)), first)
        return first

    def _below_annotated(self, snapshot: View, names: list[str]) -> tuple[Step, ...] | None:
        """Resolve through the path annotation of a logical cluster without an owner."""
        for key, rest in self._roots(snapshot, names):
            below = self._below(snapshot, key.cluster, rest)
            if below is not None:
                return Step(key, snapshot.revision_of(key), key.cluster), *below
        return None

    def _roots(self, snapshot: View, names: list[str]) -> Iterator[tuple[ObjectKey, list[str]]]:
        """Yield the logical clusters without an owner that a path may begin at, with the names below. One of another
        shard counts under the name that belongs to its path: what its shard says of the path proves nothing."""
        for count in range(2, len(names) + 1):
            path = ":".join(names[:count])
            for key in snapshot.labelled(*root_path_label(path)):
                proven = key.cluster == root_cluster_name(path) or snapshot.gate(key.cluster).generation
                if key.type == LOGICAL_CLUSTERS and proven:
                    yield key, names[count:]

    def _below(self, snapshot: View, cluster: str, names: list[str]) -> tuple[Step, ...] | None:
        steps = []
        for name in names:
            key = ObjectKey(self._workspaces, cluster, "", name)
            record = snapshot.get(key)
            if record is None:
                return None
            found = _decoder.decode(record.value)
            cluster = found.spec.cluster
            # As in kcp: a workspace in scheduling may still be placed on another shard.
            if not cluster or found.status.phase == "Scheduling":
                return None
            steps.append(Step(key, record.revision, cluster, found.status.phase == "Unavailable"))
        return tuple(steps)


#: The Workspace of a cluster without one.
_NOWHERE = ObjectKey(LOGICAL_CLUSTERS, "", "", "")


def _is_sought(workspace: str) -> bool:
    """Whether a path or name may lead to another shard's cluster."""
    if workspace == ROOT or workspace.startswith("system:") or workspace.count(":") >= MAX_DEPTH:
        return False
    return is_workspace_path(workspace) if ":" in workspace else is_cluster_name(workspace)


def _holds(snapshot: View, cached: _CachedPath) -> bool:
    """Whether every Workspace on a cached path is unchanged, local or replicated."""
    view = snapshot if cached.is_local else federated(snapshot)
    return all(view.revision_of(step.key) == step.revision for step in cached.steps)


def _resolved(view: View, last: Step) -> ResolvedPath:
    remote = not view.gate(last.cluster).generation and bool(view.replicas.shard_of(last.cluster))
    return ResolvedPath(last.cluster, remote, last.unavailable)
