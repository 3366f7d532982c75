"""Admission of LogicalClusters: users cannot create or delete them, nor write the fields that the system manages.

Implements kcp's plug-ins core.kcp.io/LogicalCluster and LogicalClusterFinalizer. Stricter than kcp: a workspace
administrator cannot skip initializers, change the path or change the type. Invariant: only an initializer's or
terminator's own virtual workspace, or an installation administrator, removes that initializer or terminator.
"""

from __future__ import annotations

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.apiserver.authorization.effective_users import effective_users
from atoll.machinery.apiserver.authorization.groups import KCP_ADMIN, LOGICAL_CLUSTER_ADMIN
from atoll.machinery.apiserver.call import errors
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.hashes import ROOT_PATH_LABEL, root_path_label
from atoll.machinery.meta.objects import Object, annotations_of, labels_of, spec_of, status_of
from atoll.machinery.meta.paths import HOME
from atoll.machinery.meta.status import FieldError, invalid
from atoll.machinery.meta.user import MASTERS
from atoll.machinery.meta.wellknown import PATH
from atoll.shard.admission.system_keys import SYSTEM
from atoll.shard.admission.system_metadata import groups_of

GROUP, PLURAL = "core.kcp.io", "logicalclusters"
#: Groups that may create LogicalClusters.
MAKERS = frozenset({MASTERS, LOGICAL_CLUSTER_ADMIN})
_PHASES = ("", "Scheduling", "Initializing", "Ready")
_INACTIVE = (wellknown.INACTIVE, wellknown.INTERNAL_INACTIVE)


class LogicalClusters(Plugin):
    """Labels and validates the LogicalCluster of every cluster."""

    resources = ((GROUP, PLURAL),)

    def mutate(self, review: Review) -> None:
        if review.obj is None:
            return
        _label_root(review.obj, review.call.cluster)
        if review.operation != "create":
            _keep_creator(review.obj, review.old)
            return
        finalizers = review.obj["metadata"].setdefault("finalizers", [])
        if wellknown.DELETION_FINALIZER not in finalizers:
            finalizers.append(wellknown.DELETION_FINALIZER)

    def validate(self, review: Review) -> None:
        held = groups_of(review.call.user, review.call.cluster)
        if review.operation == "create":
            if MAKERS.isdisjoint(held):
                raise errors.forbidden(review.call.kind, "cluster", "LogicalCluster cannot be created")
            return
        if not SYSTEM.isdisjoint(held):
            if MASTERS not in held:
                _keep_owner(review)
            return
        assert review.old is not None
        if review.operation == "delete":
            if not spec_of(review.old).get("directlyDeletable"):
                raise errors.forbidden(review.call.kind, "cluster", "LogicalCluster cannot be deleted")
        elif review.obj is not None:
            self._update(review, review.obj, review.old)

    def _update(self, review: Review, obj: Object, old: Object) -> None:
        found = [
            *_immutable_spec(obj, old),
            *_forward(obj, old),
            *_inactive(obj, old),
            *_shrinking(obj, old, "initializers", "Initializing"),
            *_shrinking(obj, old, "terminators", "Terminating"),
        ]
        administers = KCP_ADMIN in effective_users(review.call.user, review.call.cluster).own.groups
        if review.call.restrictions.check is None and not administers:
            found += _through_views(obj, old)
        if found:
            raise invalid(review.call.kind.group_kind, "cluster", found)


def _keep_owner(review: Review) -> None:
    """Raise Invalid if spec.owner changes; this holds for privileged users other than system:masters too."""
    if review.operation != "update" or review.obj is None or review.old is None:
        return
    now, then = (spec_of(each).get("owner") for each in (review.obj, review.old))
    if now != then:
        raise invalid(review.call.kind.group_kind, "cluster", [_forbidden("spec.owner", "field is immutable")])


def _keep_creator(obj: Object, old: Object | None) -> None:
    """Keep spec.createdBy in an update that leaves it out, as typed clients do whose types lack the field."""
    creator = spec_of(old).get("createdBy") if old else None
    if creator and "createdBy" not in spec_of(obj):
        obj["spec"] = {**spec_of(obj), "createdBy": creator}


def _label_root(obj: Object, cluster: str) -> None:
    """Set the path label on a cluster whose path leads through no Workspace, so that the path index finds it."""
    metadata = obj["metadata"]
    path = annotations_of(obj).get(PATH, "")
    labels = {key: value for key, value in labels_of(obj).items() if key != ROOT_PATH_LABEL}
    if ":" in path and path != cluster and not path.startswith(f"{HOME}:") and not spec_of(obj).get("owner"):
        labels.update([root_path_label(path)])
    if labels or metadata.get("labels"):
        metadata["labels"] = labels


def _forbidden(field: str, text: str) -> FieldError:
    return FieldError("FieldValueForbidden", field, f"Forbidden: {text}")


def _immutable_spec(obj: Object, old: Object) -> list[FieldError]:
    new_spec, old_spec = spec_of(obj), spec_of(old)
    return [
        _forbidden(f"spec.{name}", "field is immutable")
        for name in ("initializers", "terminators", "createdBy", "owner")
        if (new_spec.get(name) or None) != (old_spec.get(name) or None)
    ]


def _shrinking(obj: Object, old: Object, field: str, phase: str) -> list[FieldError]:
    """Allow removal of members during the phase, and no other change."""
    now, then = status_of(obj).get(field) or [], status_of(old).get(field) or []
    if now == then:
        return []
    if status_of(old).get("phase") != phase:
        past = "immutable once the workspace is initialized" if field == "initializers" else "the system's to set"
        return [_forbidden(f"status.{field}", f"{field} are {past}")]
    if not set(now) <= set(then):
        return [_forbidden(f"status.{field}", f"{field} can only be removed")]
    return []


def _through_views(obj: Object, old: Object) -> list[FieldError]:
    """Reject removal of initializers and terminators outside their virtual workspaces, by cluster-admins too."""
    return [
        _forbidden(f"status.{field}", f"members go through the virtual workspace {view}")
        for field, view in (("initializers", "initializingworkspaces"), ("terminators", "terminatingworkspaces"))
        if (status_of(obj).get(field) or []) != (status_of(old).get(field) or [])
    ]


def _forward(obj: Object, old: Object) -> list[FieldError]:
    """Reject changes of status.phase and status.URL, which controllers compute."""
    now, then = status_of(obj).get("phase") or "", status_of(old).get("phase") or ""
    found = []
    if now != then:
        backwards = now in _PHASES and then in _PHASES and _PHASES.index(now) < _PHASES.index(then)
        text = f'cannot transition from "{then}" to "{now}"' if backwards else "is set by the system"
        found.append(_forbidden("status.phase", text))
    if (status_of(obj).get("URL") or "") != (status_of(old).get("URL") or ""):
        found.append(_forbidden("status.URL", "is set by the system"))
    return found


def _inactive(obj: Object, old: Object) -> list[FieldError]:
    """Reject the inactive annotation on a logical cluster that is not Ready."""
    if status_of(old).get("phase") in {"Ready", "Inactive"}:
        return []
    added = annotations_of(obj)
    known = annotations_of(old)
    return [
        _forbidden(f"metadata.annotations[{name}]", "only a Ready logical cluster can be marked inactive")
        for name in _INACTIVE
        if added.get(name) == "true" and known.get(name) != "true"
    ]
