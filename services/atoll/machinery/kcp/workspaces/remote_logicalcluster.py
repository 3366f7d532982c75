"""A logical cluster that one shard has made on another: what the parent's shard sends, what the target makes of it.

The workspace controller sends `order` to the shard that was chosen; the target checks it with `problems` and builds the
cluster from `plan_of`, with its own knowledge of types and exports, as it builds those of its own Workspaces. The order
is the LogicalCluster that kcp posts. Invariant: an order says whose the cluster is, under which path and on which shard
it lies, and nothing of that is taken from anybody but the one who sends it; phase and status are the target's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from atoll.machinery.kcp.apis.apibindings import Export
from atoll.machinery.kcp.workspaces import workspace
from atoll.machinery.kcp.workspaces.workspacetypes import Lookup, Resolution, TypeRefused, WorkspaceType, with_bases
from atoll.machinery.meta import hashes, paths
from atoll.machinery.meta.names import ROOT, is_cluster_name, is_path_segment, is_system_cluster, is_workspace_path
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.meta.wellknown import OWNER, PATH, REQUIRED_GROUPS, SHARD, SINGLETON, TYPE

API_VERSION, RESOURCE = "tenancy.kcp.io/v1alpha1", "workspaces"
_OWNER_FIELDS = ("apiVersion", "resource", "name", "cluster", "uid")


def manifest(plan: workspace.WorkspacePlan) -> Object:
    """The LogicalCluster to post on plan's shard."""
    annotations = {PATH: plan.path, TYPE: plan.resolution.type.qualified, SHARD: plan.shard.name}
    spec: Object = {"owner": workspace.owner_reference(plan)}
    if (creator := workspace.owner_of(plan.workspace)) is not None:
        annotations[OWNER] = plan.workspace["metadata"]["annotations"][OWNER]
        spec["createdBy"] = msgspec.to_builtins(creator)
    if plan.required_groups:
        annotations[REQUIRED_GROUPS] = plan.required_groups
    if plan.resolution.initializers:
        spec["initializers"] = list(plan.resolution.initializers)
    if plan.resolution.terminators:
        spec["terminators"] = list(plan.resolution.terminators)
    return {
        "apiVersion": "core.kcp.io/v1alpha1",
        "kind": "LogicalCluster",
        "metadata": {"name": SINGLETON, "annotations": annotations},
        "spec": spec,
    }


def is_requested(obj: Object) -> bool:
    """Whether somebody's Workspace shall own this new LogicalCluster."""
    return bool((obj.get("spec") or {}).get("owner"))


def owner_uid(cluster: Object) -> str:
    """The uid of the Workspace that owns a LogicalCluster; "" where none does."""
    return str(((cluster.get("spec") or {}).get("owner") or {}).get("uid", ""))


def problems(obj: Object, cluster: str, shard: str) -> list[FieldError]:
    """What is wrong with an order for a cluster on a shard, so that nothing is made of it."""
    annotations = obj["metadata"].get("annotations") or {}
    owner, path = (obj.get("spec") or {}).get("owner") or {}, annotations.get(PATH, "")
    found = []
    if obj["metadata"].get("name") != SINGLETON:
        found.append(_invalid("metadata.name", f'must be "{SINGLETON}"'))
    if cluster == ROOT or is_system_cluster(cluster) or not is_cluster_name(cluster):
        found.append(_invalid("metadata.name", f'logical cluster "{cluster}" is no workspace'))
    if annotations.get(SHARD) != shard:
        found.append(_invalid(f"metadata.annotations[{SHARD}]", f'this is shard "{shard}"'))
    if any(not isinstance(owner.get(field), str) or not owner[field] for field in _OWNER_FIELDS):
        found.append(_invalid("spec.owner", f"must have {', '.join(_OWNER_FIELDS)}"))
    elif (owner["apiVersion"], owner["resource"]) != (API_VERSION, RESOURCE) or not is_path_segment(owner["name"]):
        found.append(_invalid("spec.owner", f"must be one of {RESOURCE} of {API_VERSION}"))
    elif owner["cluster"] == cluster or is_system_cluster(owner["cluster"]) or not is_cluster_name(owner["cluster"]):
        found.append(_invalid("spec.owner.cluster", "is no parent of this logical cluster"))
    elif cluster != hashes.cluster_name_of(owner["cluster"], owner["uid"], shard):
        found.append(_invalid("spec.owner.uid", f'logical cluster "{cluster}" is not this one\'s'))
    elif not is_workspace_path(path) or paths.split(path)[1] != owner["name"]:
        found.append(_invalid(f"metadata.annotations[{PATH}]", "must be a path that ends in the owner's name"))
    if not all(paths.split(annotations.get(TYPE, ""))):
        found.append(_invalid(f"metadata.annotations[{TYPE}]", "must be in the form of path:name"))
    return found


class RequestedCluster(NamedTuple):
    """What the target builds on: itself, the types and exports that it knows, the time, and where uids come from."""

    shard: workspace.Shard
    find_type: Lookup
    find_export: Callable[[str, str], Export | None]
    now: str
    new_uid: Callable[[], str]


def plan_of(obj: Object, cluster: str, request: RequestedCluster) -> workspace.WorkspacePlan:
    """How to build the cluster of an order without problems.

    Who must finish before it is Ready is what the sender says, who admitted its type. A type that is not known here yet
    leaves the default bindings to the controllers, and the cluster waits for them.
    """
    annotations, spec = obj["metadata"]["annotations"], obj["spec"]
    owner, creator = spec["owner"], {key: annotations[key] for key in (OWNER,) if key in annotations}
    return workspace.WorkspacePlan(
        workspace={"metadata": {"name": owner["name"], "uid": owner["uid"], "annotations": creator}},
        parent_cluster=owner["cluster"],
        path=annotations[PATH],
        cluster=cluster,
        resolution=_resolution(annotations[TYPE], request.find_type),
        shard=request.shard,
        find_export=request.find_export,
        now=request.now,
        new_uid=request.new_uid,
        required_groups=annotations.get(REQUIRED_GROUPS, ""),
        requested=workspace.WorkspaceRequest(
            tuple(spec.get("initializers") or ()), tuple(spec.get("terminators") or ())
        ),
    )


def _resolution(qualified: str, find_type: Lookup) -> Resolution:
    path, name = paths.split(qualified)
    found = find_type(path, name)
    if found is not None:
        try:
            return with_bases(found, find_type)
        except TypeRefused:
            # A base of it has not arrived yet.
            pass
    return Resolution((WorkspaceType(cluster="", path=path, name=name),))


def _invalid(field: str, text: str) -> FieldError:
    return FieldError("FieldValueInvalid", field, f"Invalid value: {text}")
