"""Admission of Workspaces and WorkspaceTypes: owner, type, use permission, fields that only the system sets.

Implements kcp's plug-ins tenancy.kcp.io/Workspace, WorkspaceTypeExists and WorkspaceType.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.apiserver.authorization.attributes import Attributes
from atoll.machinery.apiserver.authorization.groups import without_lifecycle
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.kcp.workspaces import workspacetypes
from atoll.machinery.kcp.workspaces.workspacetypes import Resolution, TypeReference, TypeRefused, WorkspaceType
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object, annotations_of, decode, labels_of, spec_of
from atoll.machinery.meta.selectors import validate_label_selector
from atoll.machinery.meta.status import invalid
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.meta.user import CLUSTER_NAME, User, is_service_account
from atoll.tenancy.cluster_builder import path_below
from atoll.tenancy.lookups import Lookups
from atoll.tenancy.placement import ShardPlacement

GROUP = "tenancy.kcp.io"
#: Calls the authorizer; the deep form skips the workspace access check of the other cluster.
May = Callable[[View, Attributes], bool]


def owner_annotation(user: User, cluster: str) -> str:
    """Return the creator of a Workspace in `cluster`, encoded as authentication.k8s.io UserInfo.

    A service account without a home cluster is one of this cluster.
    """
    info: Object = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    if groups := without_lifecycle(user.groups):
        info["groups"] = list(groups)
    extra = {name: list(values) for name, values in user.extra.items()}
    if is_service_account(user.name):
        extra.setdefault(CLUSTER_NAME, [cluster])
    if extra:
        info["extra"] = extra
    return msgspec.json.encode(info).decode()


class Workspaces(Plugin):
    """Defaults and validates Workspaces."""

    resources = ((GROUP, "workspaces"),)

    def __init__(self, facts: Lookups, may: May, placement: ShardPlacement) -> None:
        self._facts, self._may, self._placement = facts, may, placement

    def mutate(self, review: Review) -> None:
        if review.obj is None or review.call.whole:
            return
        if review.operation != "create":
            return
        metadata, user = review.obj["metadata"], review.call.user
        parent = self._parent(review)
        annotations = dict(annotations_of(review.obj))
        if not user.is_master:
            annotations[wellknown.OWNER] = owner_annotation(user, review.call.cluster)
        required = annotations_of(parent).get(wellknown.REQUIRED_GROUPS)
        if required:
            annotations[wellknown.REQUIRED_GROUPS] = required
        if annotations:
            metadata["annotations"] = annotations
        if not spec_of(review.obj).get("mount"):
            self._resolve_type(review, parent)
        labels = labels_of(review.obj)
        review.obj["metadata"]["labels"] = {**labels, wellknown.PHASE: "Scheduling"}

    def _resolve_type(self, review: Review, parent: Object) -> None:
        assert review.obj is not None
        try:
            resolution = self._resolution(review, parent)
        except TypeRefused as error:
            raise workspacetypes.forbidden(review.obj["metadata"]["name"], error) from error
        review.obj.update(workspacetypes.with_type(review.obj, resolution))

    def _parent(self, review: Review) -> Object:
        record = review.view.get(ObjectKey(LOGICAL_CLUSTERS, review.call.cluster, "", wellknown.SINGLETON))
        if record is None:
            name = review.obj["metadata"].get("name", "") if review.obj else ""
            raise errors.forbidden(review.call.kind, name, "the logical cluster has no LogicalCluster object")
        return decode(record.value)

    def _lookup(self, view: View) -> workspacetypes.Lookup:
        return lambda path, name: self._facts.workspace_type(view, path, name)

    def _resolution(self, review: Review, parent: Object) -> Resolution:
        assert review.obj is not None
        given = spec_of(review.obj).get("type") or {}
        requested = TypeReference(given["name"], given.get("path") or "") if given.get("name") else None
        return workspacetypes.resolve(requested, parent, self._lookup(review.view))

    def validate(self, review: Review) -> None:
        if review.obj is None or review.call.whole:
            return
        if review.operation == "create":
            self._validate_create(review, review.obj)
        elif review.operation == "update" and review.old is not None:
            self._validate_update(review, review.obj, review.old)

    def _validate_create(self, review: Review, obj: Object) -> None:
        spec, name, kind = spec_of(obj), obj["metadata"]["name"], review.call.kind
        if not review.call.user.is_master:
            _refuse_system_fields(review, {})
        mount = spec.get("mount")
        if mount:
            reference = mount.get("ref") or {}
            if not all(reference.get(field) for field in ("kind", "name", "apiVersion")):
                raise errors.forbidden(kind, name, "spec.mount.ref must have kind, name and apiVersion")
            if spec.get("type"):
                raise errors.forbidden(kind, name, "spec.type cannot be set together with spec.mount")
            return
        parent = self._parent(review)
        self._check_location(review, obj, parent)
        try:
            resolution = self._resolution(review, parent)
            workspacetypes.check(resolution, parent, self._lookup(review.view), self._may_use(review))
        except TypeRefused as error:
            raise workspacetypes.forbidden(name, error) from error

    def _check_location(self, review: Review, obj: Object, parent: Object) -> None:
        """Raise Invalid or Forbidden for a location selector that can match no shard."""
        selector = (spec_of(obj).get("location") or {}).get("selector")
        if selector is None:
            return
        kind, name = review.call.kind, obj["metadata"]["name"]
        if found := validate_label_selector(selector, "spec.location.selector"):
            raise invalid(kind.group_kind, name, found)
        if text := self._placement.refusal(review.view, obj, path_below(parent, name)):
            raise errors.forbidden(kind, name, text)

    def _may_use(self, review: Review) -> workspacetypes.MayUse:
        def may_use(found: WorkspaceType) -> bool:
            attributes = Attributes(
                user=review.call.user,
                verb="use",
                cluster=found.cluster,
                group=GROUP,
                version="v1alpha1",
                resource="workspacetypes",
                name=found.name,
            )
            return self._may(review.view, attributes)

        return may_use

    def _validate_update(self, review: Review, obj: Object, old: Object) -> None:
        spec, before = spec_of(obj), spec_of(old)
        if before.get("type") and spec.get("type") != before.get("type"):
            raise errors.forbidden(review.call.kind, obj["metadata"]["name"], "spec.type is immutable")
        if spec.get("mount") != before.get("mount"):
            # A Workspace is either mounted or has a logical cluster, from its creation on.
            raise errors.forbidden(review.call.kind, obj["metadata"]["name"], "spec.mount is immutable")
        if not review.call.user.is_master:
            _refuse_system_fields(review, before)


def _refuse_system_fields(review: Review, before: Object) -> None:
    """Raise Forbidden if a user sets or changes spec.cluster or spec.URL, which the scheduler sets."""
    assert review.obj is not None
    spec = spec_of(review.obj)
    for field, shown in (("cluster", "spec.Cluster"), ("URL", "spec.URL")):
        if spec.get(field, "") != before.get(field, ""):
            name = review.obj["metadata"]["name"]
            verb = "set" if not before.get(field) else "changed"
            text = f"{shown} can only be {verb} by system privileged users"
            raise errors.forbidden(review.call.kind, name, text)


class WorkspaceTypes(Plugin):
    """Validates WorkspaceTypes: references have a path, and the author has `bind` on each new default binding."""

    resources = ((GROUP, "workspacetypes"),)

    def __init__(self, facts: Lookups, may: May) -> None:
        self._facts, self._may = facts, may

    def validate(self, review: Review) -> None:
        if review.obj is None or review.subresource:
            return
        spec, name = spec_of(review.obj), review.obj["metadata"]["name"]
        child = spec.get("defaultChildWorkspaceType")
        if child is not None and not child.get("path"):
            raise errors.forbidden(review.call.kind, name, "spec.defaultChildWorkspaceType.path must be set")
        for field in ("limitAllowedChildren", "limitAllowedParents"):
            for index, entry in enumerate((spec.get(field) or {}).get("types") or []):
                if not entry.get("path"):
                    raise errors.forbidden(review.call.kind, name, f"spec.{field}.types[{index}].path must be set")
        self._check_bindings(review, spec)

    def _check_bindings(self, review: Review, spec: Object) -> None:
        known = spec_of(review.old or {}).get("defaultAPIBindings") or []
        for binding in spec.get("defaultAPIBindings") or []:
            if binding in known or review.call.user.is_master:
                continue
            path, export = binding.get("path") or review.call.cluster, binding["export"]
            if not may_bind(self._facts, self._may, review, path, export):
                assert review.obj is not None
                text = f"no permission to bind to export {path}:{export}"
                raise errors.forbidden(review.call.kind, review.obj["metadata"]["name"], text)


def may_bind(facts: Lookups, may: May, review: Review, path: str, export: str) -> bool:
    """Return whether the caller has verb `bind` on an export in the cluster that the path leads to.

    The export need not exist yet: RBAC may name it first. A path that leads nowhere, and an export that must not be
    seen from the caller's cluster, give the same answer as a forbidden one. Raises SearchPending and ServiceUnavailable
    while it is not known whether the path leads anywhere.
    """
    cluster = facts.cluster_to_authorize(review.view, path)
    if cluster is None or facts.is_out_of_reach(review.view, path, export, review.call.cluster):
        return False
    attributes = Attributes(
        user=review.call.user,
        verb="bind",
        cluster=cluster,
        group="apis.kcp.io",
        version="v1alpha2",
        resource="apiexports",
        name=export,
    )
    return may(review.view, attributes)
