"""A new workspace, built in the furthest state that its type allows.

The workspace controller gathers the facts (resolved type, exports to bind, shard, creator), calls `build`,
and submits the manifests in one batch; then it writes the Workspace as `settle` gives it. Initializers that
the system runs itself (`root:universal`, `system:apibindings`) are passed here; any other leaves the
logical cluster Initializing. The objects are those that kcp's controllers would have left behind.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from atoll.machinery.kcp import shapes
from atoll.machinery.kcp.bindings import Bindings, Export, Wanted, bind
from atoll.machinery.kcp.logicalcluster import (
    BINDINGS_INITIALIZED,
    READY,
    Facts,
    Life,
    initialized,
    logical_cluster,
)
from atoll.machinery.kcp.namespaces import DEFAULT, KUBE_SYSTEM, namespaces
from atoll.machinery.kcp.shapes import Manifest, Stamp
from atoll.machinery.kcp.types import BINDINGS_INITIALIZER, DefaultBinding, Resolution
from atoll.machinery.meta import hashes
from atoll.machinery.meta.conditions import FALSE, INFO, TRUE, Condition, set_condition
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.types import CLUSTER_ROLE_BINDINGS

#: The initializer that makes a workspace's first namespaces; every type that extends `universal` has it.
NAMESPACE_INITIALIZER = "root:universal"
ADMIN_BINDING = "workspace-admin"
SCHEDULED = "WorkspaceScheduled"


class Shard(msgspec.Struct, frozen=True):
    """The shard that hosts a cluster. URLs have no trailing slash; `ca_bundle` is PEM."""

    name: str
    external_url: str
    ca_bundle: str
    labels: dict[str, str] = {}


class Owner(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who made a workspace: UserInfo, as the owner annotation and spec.createdBy have it."""

    username: str
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


_owner_decoder = msgspec.json.Decoder(Owner)


class Plan(msgspec.Struct, frozen=True):
    """What is known when a Workspace is scheduled.

    `path` is the new workspace's canonical path, `cluster` its logical cluster's name
    (hashes.random_cluster_name), `find_export` gives an export by path or cluster name and name, or None.
    `parent_cluster` is empty for a home, which no Workspace owns.
    `required_groups` comes from the parent's LogicalCluster, empty where it has none.
    """

    workspace: Object
    parent_cluster: str
    path: str
    cluster: str
    resolution: Resolution
    shard: Shard
    find_export: Callable[[str, str], Export | None]
    now: str
    new_uid: Callable[[], str]
    required_groups: str = ""


def build(plan: Plan) -> tuple[Manifest, ...]:
    """Everything inside the new logical cluster; the LogicalCluster, which opens the gate, comes first."""
    stamp = Stamp(plan.cluster, plan.path, plan.now, partial(_fresh, plan.new_uid))
    bindings = bind(stamp, [_wanted(plan, binding) for binding in plan.resolution.default_bindings])
    life = _life(plan, bindings)
    manifests = [_logical_cluster(plan, stamp, bindings, life)]
    owner = owner_of(plan.workspace)
    if owner is not None:
        manifests.append(_admin_binding(stamp, owner.username))
    if NAMESPACE_INITIALIZER in life.initializers:
        manifests.extend(namespaces(stamp, (DEFAULT, KUBE_SYSTEM), plan.shard.ca_bundle))
    return (*manifests, *bindings.manifests)


def settle(workspace: Object, cluster: Object, shard: Shard, now: str) -> Object:
    """The Workspace as it stands once its LogicalCluster `cluster` was written on `shard`.

    Also mirrors later phases: called again with the LogicalCluster's present state it changes what has
    changed.
    """
    status = cluster["status"]
    metadata, annotations = workspace["metadata"], cluster["metadata"]["annotations"]
    name, phase = annotations[shapes.CLUSTER], status["phase"]
    labels = {**(metadata.get("labels") or {}), shapes.PHASE: phase}
    if region := shard.labels.get(shapes.REGION):
        labels[shapes.REGION] = region
    finalizers = metadata.get("finalizers") or []
    if shapes.OWNER_FINALIZER not in finalizers:
        finalizers = [*finalizers, shapes.OWNER_FINALIZER]
    url = f"{shard.external_url}/clusters/{annotations[shapes.PATH]}"
    return {
        **workspace,
        "metadata": {
            **metadata,
            "annotations": _workspace_annotations(workspace, shard.name, name, phase),
            "labels": labels,
            "finalizers": finalizers,
        },
        "spec": {**workspace["spec"], "cluster": name, "URL": url},
        "status": _workspace_status(workspace, status, now),
    }


def owner_of(obj: Object) -> Owner | None:
    """The creator in the owner annotation; None where it is absent or, put there by hand, unreadable."""
    text = (obj["metadata"].get("annotations") or {}).get(shapes.OWNER, "")
    try:
        return _owner_decoder.decode(text) if text else None
    except (msgspec.DecodeError, UnicodeError):
        return None


def reduced_owner(owner: Owner) -> str:
    """Value of the owner annotation once a workspace is ready: the name alone."""
    return msgspec.json.encode({"username": owner.username}).decode()


def _fresh(new_uid: Callable[[], str], _: str) -> str:
    return new_uid()


def _wanted(plan: Plan, binding: DefaultBinding) -> Wanted:
    name = hashes.default_binding_name(plan.cluster, binding.path, binding.export)
    return Wanted(name, binding.path, binding.export, plan.find_export(binding.path, binding.export))


def _life(plan: Plan, bindings: Bindings) -> Life:
    initializers = plan.resolution.initializers
    passed = {NAMESPACE_INITIALIZER, *([BINDINGS_INITIALIZER] if bindings.all_bound else [])}
    left = tuple(name for name in initializers if name not in passed)
    return Life(initializers, plan.resolution.terminators, left)


def _logical_cluster(plan: Plan, stamp: Stamp, bindings: Bindings, life: Life) -> Manifest:
    metadata = plan.workspace["metadata"]
    spec: Object = {}
    annotations: dict[str, str] = {}
    if plan.parent_cluster:
        spec["owner"] = {
            "apiVersion": "tenancy.kcp.io/v1alpha1",
            "resource": "workspaces",
            "name": metadata["name"],
            "cluster": plan.parent_cluster,
            "uid": metadata["uid"],
        }
    if (creator := owner_of(plan.workspace)) is not None:
        spec["createdBy"] = msgspec.to_builtins(creator)
        full = metadata["annotations"][shapes.OWNER]
        annotations[shapes.OWNER] = full if life.left else reduced_owner(creator)
    if plan.required_groups:
        annotations[shapes.REQUIRED_GROUPS] = plan.required_groups
    facts = Facts(
        shard=plan.shard.name,
        external_url=plan.shard.external_url,
        type=plan.resolution.type.qualified,
        locks=bindings.locks,
        life=life,
        spec=spec,
        annotations=annotations,
        conditions=_binding_conditions(bindings),
    )
    return logical_cluster(stamp, facts)


def _binding_conditions(bindings: Bindings) -> tuple[Condition, ...]:
    if not bindings.manifests:
        return ()
    if bindings.all_bound:
        return (Condition(BINDINGS_INITIALIZED, TRUE),)
    names = " ".join(m.object["metadata"]["name"] for m in bindings.manifests if not _is_bound(m.object))
    message = f"APIBinding(s) not yet bound: [{names}]"
    return (Condition(BINDINGS_INITIALIZED, FALSE, "WaitingOnAPIBindings", message, INFO),)


def _is_bound(binding: Object) -> bool:
    return bool(binding.get("status", {}).get("phase") == "Bound")


def _admin_binding(stamp: Stamp, username: str) -> Manifest:
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": stamp.metadata("clusterrolebindings", ADMIN_BINDING),
        "roleRef": {"apiGroup": shapes.RBAC_GROUP, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": shapes.RBAC_GROUP, "kind": "User", "name": username}],
    }
    return Manifest(stamp.cluster, binding, CLUSTER_ROLE_BINDINGS)


def _workspace_annotations(workspace: Object, shard: str, cluster: str, phase: str) -> dict[str, str]:
    annotations: dict[str, str] = {
        **(workspace["metadata"].get("annotations") or {}),
        shapes.SHARD: shard,
        shapes.SHARD_HASH: hashes.shard_hash(shard),
        shapes.SCHEDULED_CLUSTER: cluster,
    }
    if phase == READY and (owner := owner_of(workspace)) is not None:
        annotations[shapes.OWNER] = reduced_owner(owner)
    return annotations


def _workspace_status(workspace: Object, cluster_status: Object, now: str) -> Object:
    left = tuple(cluster_status.get("initializers") or ())
    conditions = (workspace.get("status") or {}).get("conditions") or []
    for condition in (initialized(left), Condition(SCHEDULED, TRUE)):
        conditions = set_condition(conditions, condition, now)
    status: Object = {"phase": cluster_status["phase"], "conditions": conditions}
    for field in ("initializers", "terminators"):
        if names := cluster_status.get(field):
            status[field] = list(names)
    return status
