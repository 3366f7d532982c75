"""LogicalClusters are the system's: users may not make or remove them, and only move them forward.

Stands for kcp's plug-ins core.kcp.io/LogicalCluster and LogicalClusterFinalizer.
"""

from __future__ import annotations

from atoll.machinery.apiserver import errors
from atoll.machinery.apiserver.admission.chain import Review
from atoll.machinery.kcp.shapes import PATH
from atoll.machinery.meta.hashes import ROOT_PATH_LABEL, root_path_label
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.paths import HOME
from atoll.machinery.meta.status import FieldError, invalid
from atoll.machinery.meta.user import User

GROUP, PLURAL = "core.kcp.io", "logicalclusters"
DELETION_FINALIZER = "core.kcp.io/logicalcluster-deletion"
PRIVILEGED = frozenset({
    "system:masters", "system:kcp:logical-cluster-admin", "system:kcp:external-logical-cluster-admin",
    "system:kcp:tenancy:workspace-bootstrapper",
})  # fmt: skip
_PHASES = ("", "Scheduling", "Initializing", "Ready")
_MIGRATING = "internal.kcp.io/migrating"
_INACTIVE = ("core.kcp.io/inactive", "internal.kcp.io/inactive")


def is_privileged(user: User) -> bool:
    """Whether a user acts for the system."""
    return not PRIVILEGED.isdisjoint(user.groups)


class LogicalClusters:
    """Guards the LogicalCluster of every cluster."""

    def mutate(self, review: Review) -> None:
        if review.group_resource != (GROUP, PLURAL) or review.obj is None:
            return
        _label_root(review.obj, review.call.cluster)
        if review.operation != "create":
            return
        finalizers = review.obj["metadata"].setdefault("finalizers", [])
        if DELETION_FINALIZER not in finalizers:
            finalizers.append(DELETION_FINALIZER)

    def validate(self, review: Review) -> None:
        if review.group_resource != (GROUP, PLURAL) or is_privileged(review.call.user):
            return
        if review.operation == "create":
            raise errors.forbidden(review.call.kind, "cluster", "LogicalCluster cannot be created")
        assert review.old is not None
        if review.operation == "delete":
            if not (review.old.get("spec") or {}).get("directlyDeletable"):
                raise errors.forbidden(review.call.kind, "cluster", "LogicalCluster cannot be deleted")
        elif review.obj is not None:
            self._update(review, review.obj, review.old)

    def _update(self, review: Review, obj: Object, old: Object) -> None:
        found = [
            *_immutable_spec(obj, old), *_shrinking(obj, old), *_forward(obj, old), *_inactive(obj, old),
            *_moving(obj, old),
        ]  # fmt: skip
        if found:
            raise invalid(review.call.kind.group_kind, "cluster", found)


def _label_root(obj: Object, cluster: str) -> None:
    """A path that leads through no Workspace is found by a label."""
    metadata = obj["metadata"]
    path = (metadata.get("annotations") or {}).get(PATH, "")
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != ROOT_PATH_LABEL}
    if ":" in path and path != cluster and not path.startswith(f"{HOME}:") and not (obj.get("spec") or {}).get("owner"):
        labels.update([root_path_label(path)])
    if labels or metadata.get("labels"):
        metadata["labels"] = labels


def _forbidden(field: str, text: str) -> FieldError:
    return FieldError("FieldValueForbidden", field, f"Forbidden: {text}")


def _immutable_spec(obj: Object, old: Object) -> list[FieldError]:
    new_spec, old_spec = obj.get("spec") or {}, old.get("spec") or {}
    return [
        _forbidden(f"spec.{name}", "field is immutable")
        for name in ("initializers", "createdBy")
        if (new_spec.get(name) or None) != (old_spec.get(name) or None)
    ]


def _shrinking(obj: Object, old: Object) -> list[FieldError]:
    """status.initializers may lose members while Initializing and never change afterwards."""
    status, before = obj.get("status") or {}, old.get("status") or {}
    now, then = status.get("initializers") or [], before.get("initializers") or []
    if now == then:
        return []
    if before.get("phase") != "Initializing":
        return [_forbidden("status.initializers", "initializers are immutable once the workspace is initialized")]
    if not set(now) <= set(then):
        return [_forbidden("status.initializers", "initializers can only be removed")]
    return []


def _forward(obj: Object, old: Object) -> list[FieldError]:
    now = (obj.get("status") or {}).get("phase") or ""
    then = (old.get("status") or {}).get("phase") or ""
    if now in _PHASES and then in _PHASES and _PHASES.index(now) < _PHASES.index(then):
        return [_forbidden("status.phase", f'cannot transition from "{then}" to "{now}"')]
    return []


def _moving(obj: Object, old: Object) -> list[FieldError]:
    """Only the system says that a logical cluster moves."""
    now, then = (each["metadata"].get("annotations") or {} for each in (obj, old))
    if now.get(_MIGRATING) == then.get(_MIGRATING):
        return []
    return [_forbidden(f"metadata.annotations[{_MIGRATING}]", "is set by the system")]


def _inactive(obj: Object, old: Object) -> list[FieldError]:
    """A logical cluster is taken offline only once it is Ready."""
    if (old.get("status") or {}).get("phase") == "Ready":
        return []
    added = obj["metadata"].get("annotations") or {}
    known = old["metadata"].get("annotations") or {}
    return [
        _forbidden(f"metadata.annotations[{name}]", "only a Ready logical cluster can be marked inactive")
        for name in _INACTIVE
        if added.get(name) == "true" and known.get(name) != "true"
    ]
