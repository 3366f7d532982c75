"""Creation of a logical cluster on another shard: the manifest that is sent, and the plan that the target builds.

The workspace controller posts `manifest` to the chosen shard; the target checks it with `problems` and builds the
cluster from `plan_of`, with its own types and exports, like those of its own Workspaces. The manifest is the
LogicalCluster that kcp posts. Invariant: owner, path and shard are taken from the manifest alone; phase and status are
set by the target.
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
from atoll.machinery.meta.objects import Object, annotations_of, spec_of
from atoll.machinery.meta.status import FieldError
from atoll.machinery.meta.wellknown import OWNER, PATH, REQUIRED_GROUPS, SHARD, SINGLETON, TYPE

API_VERSION, RESOURCE = "tenancy.kcp.io/v1alpha1", "workspaces"
_OWNER_FIELDS = ("apiVersion", "resource", "name", "cluster", "uid")


def manifest(plan: workspace.WorkspacePlan) -> Object:
    """Return the LogicalCluster to post on the plan's shard."""
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
    """Return whether a Workspace will own this new LogicalCluster."""
    return bool(spec_of(obj).get("owner"))


def owner_uid(cluster: Object) -> str:
    """Return the uid of the Workspace that owns a LogicalCluster; "" where none does."""
    return str((spec_of(cluster).get("owner") or {}).get("uid", ""))


def problems(obj: Object, cluster: str, shard: str) -> list[FieldError]:
    """Return the errors of a manifest for a cluster on a shard; with any, the cluster is not created."""
    annotations = annotations_of(obj)
    owner, path = spec_of(obj).get("owner") or {}, annotations.get(PATH, "")
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
    """Inputs of the target: its shard, look-ups of types and exports, the time, and a source of uids."""

    shard: workspace.Shard
    find_type: Lookup
    find_export: Callable[[str, str], Export | None]
    now: str
    new_uid: Callable[[], str]


def plan_of(obj: Object, cluster: str, request: RequestedCluster) -> workspace.WorkspacePlan:
    """Return the plan of a valid manifest.

    Initializers and terminators are the sender's, which admitted the type. For a type that is not known here yet, the
    controllers make the default bindings, and the cluster waits for them.
    """
    annotations, spec = obj["metadata"]["annotations"], obj["spec"]
    owner, creator = spec["owner"], {key: annotations[key] for key in (OWNER,) if key in annotations}
    return workspace.WorkspacePlan(
        workspace={"metadata": {"name": owner["name"], "uid": owner["uid"], "annotations": creator}},
        parent_cluster=owner["cluster"],
        path=annotations[PATH],
        cluster=cluster,
        resolution=resolution_of(annotations[TYPE], request.find_type),
        shard=request.shard,
        find_export=request.find_export,
        now=request.now,
        new_uid=request.new_uid,
        required_groups=annotations.get(REQUIRED_GROUPS, ""),
        requested=workspace.WorkspaceRequest(
            tuple(spec.get("initializers") or ()), tuple(spec.get("terminators") or ())
        ),
    )


def resolution_of(qualified: str, find_type: Lookup) -> Resolution:
    """Return the type of this qualified name with its bases; without bases where the type is not known here yet."""
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
