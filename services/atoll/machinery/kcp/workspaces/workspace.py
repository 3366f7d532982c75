"""The objects of a new workspace, in the furthest state that its type allows.

The workspace controller collects the inputs (resolved type, exports to bind, shard, creator), calls `build`, and
submits the manifests in one batch; then it writes the Workspace that `desired_workspace` returns. Initializers run by
the system (`root:universal`, `system:apibindings`) are completed here; with any other the logical cluster stays
Initializing. Invariant: the objects equal the final result of kcp's controllers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from atoll.machinery.kcp.apis.apibindings import Export
from atoll.machinery.kcp.apis.initial_bindings import Bindings, InitialBinding, bind
from atoll.machinery.kcp.manifest import Manifest, ObjectStamp
from atoll.machinery.kcp.namespaces import DEFAULT, KUBE_SYSTEM, namespaces
from atoll.machinery.kcp.workspaces.default_bindings import (
    INITIALIZED,
    RECONCILED,
    bindings_condition,
    no_export,
    required,
)
from atoll.machinery.kcp.workspaces.logicalcluster import (
    READY,
    ClusterFacts,
    ClusterLifecycle,
    initialized,
    logical_cluster,
)
from atoll.machinery.kcp.workspaces.workspacetypes import BINDINGS_INITIALIZER, Resolution
from atoll.machinery.meta import hashes, wellknown
from atoll.machinery.meta.conditions import TRUE, Condition, set_condition
from atoll.machinery.meta.objects import Object, annotations_of, conditions_of, finalizers_of, labels_of
from atoll.machinery.meta.types import CLUSTER_ROLE_BINDINGS
from atoll.machinery.meta.user import CLUSTER_NAME, global_name, is_service_account

#: The initializer that creates a workspace's first namespaces; every type that extends `universal` has it.
NAMESPACE_INITIALIZER = "root:universal"
ADMIN_BINDING = "workspace-admin"
SCHEDULED = "WorkspaceScheduled"


class Shard(msgspec.Struct, frozen=True):
    """The shard that hosts a cluster. URLs have no trailing slash; `ca_bundle` is PEM. `virtual_workspace_url` is the
    base URL of its virtual workspaces."""

    name: str
    external_url: str
    ca_bundle: str
    labels: dict[str, str] = {}
    virtual_workspace_url: str = ""


class Owner(msgspec.Struct, frozen=True, omit_defaults=True):
    """The creator of a workspace: UserInfo, as in the owner annotation and spec.createdBy."""

    username: str
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


_owner_decoder = msgspec.json.Decoder(Owner)


class WorkspaceRequest(msgspec.Struct, frozen=True):
    """Initializers and terminators of a new cluster, as the shard of its parent sent them."""

    initializers: tuple[str, ...] = ()
    terminators: tuple[str, ...] = ()


class WorkspacePlan(msgspec.Struct, frozen=True):
    """The inputs from which a new workspace is built.

    `path` is the new workspace's canonical path, `cluster` its logical cluster's name (hashes.cluster_name_of).
    `find_export` returns an export by path or cluster name and name, or None. `parent_cluster` is empty for a home,
    which no Workspace owns. `required_groups` is taken from the parent's LogicalCluster, empty where it has none.
    `generation` is the number of the choice that a home was created for, empty for other clusters.
    `requested` is set by the shard of a remote parent; None: `resolution` determines initializers and terminators.
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
    generation: str = ""
    requested: WorkspaceRequest | None = None


def build(plan: WorkspacePlan) -> tuple[Manifest, ...]:
    """Return all objects of the new logical cluster; the LogicalCluster, which opens the gate, is first."""
    stamp = ObjectStamp(plan.cluster, plan.path, plan.now, partial(_fresh, plan.new_uid))
    bindings, missing = _bindings(plan, stamp)
    life = _life(plan, bindings, missing)
    # Bindings precede the other objects, so that objects they claim are labelled in the same submit.
    conditions = _bindings_conditions(plan.resolution, bindings, missing)
    manifests = [_logical_cluster(plan, stamp, bindings, (life, conditions)), *bindings.manifests]
    owner = owner_of(plan.workspace)
    if owner is not None and (administrator := _administrator(owner)):
        manifests.append(_admin_binding(stamp, administrator))
    if NAMESPACE_INITIALIZER in life.initializers:
        manifests.extend(namespaces(stamp, (DEFAULT, KUBE_SYSTEM), plan.shard.ca_bundle))
    return tuple(manifests)


def desired_workspace(workspace: Object, cluster: Object, shard: Shard, now: str) -> Object:
    """Return the Workspace for its LogicalCluster `cluster` on `shard`.

    Also used for later phases: the result follows the LogicalCluster's current state.
    """
    status = cluster["status"]
    metadata, annotations = workspace["metadata"], cluster["metadata"]["annotations"]
    name, phase = annotations[wellknown.CLUSTER], status["phase"]
    labels = {**labels_of(workspace), wellknown.PHASE: phase}
    if region := shard.labels.get(wellknown.REGION):
        labels[wellknown.REGION] = region
    finalizers = finalizers_of(workspace)
    if wellknown.OWNER_FINALIZER not in finalizers:
        finalizers = [*finalizers, wellknown.OWNER_FINALIZER]
    url = f"{shard.external_url}/clusters/{annotations[wellknown.PATH]}"
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
    """Return the creator from the owner annotation; None if it is absent or cannot be decoded."""
    text = annotations_of(obj).get(wellknown.OWNER, "")
    try:
        return _owner_decoder.decode(text) if text else None
    except (msgspec.DecodeError, UnicodeError):
        return None


def owner_reference(plan: WorkspacePlan) -> Object:
    """Return spec.owner of a Workspace's LogicalCluster."""
    metadata = plan.workspace["metadata"]
    return {
        "apiVersion": "tenancy.kcp.io/v1alpha1",
        "resource": "workspaces",
        "name": metadata["name"],
        "cluster": plan.parent_cluster,
        "uid": metadata["uid"],
    }


def reduced_owner(owner: Owner) -> str:
    """Return the value of the owner annotation once a workspace is Ready: the username only."""
    return msgspec.json.encode({"username": owner.username}).decode()


def _fresh(new_uid: Callable[[], str], _: str) -> str:
    return new_uid()


def _bindings(plan: WorkspacePlan, stamp: ObjectStamp) -> tuple[Bindings, tuple[str, ...]]:
    """Return the default bindings, and a text for each missing export, whose binding is not created yet."""
    wanted, missing = [], []
    for each in required(plan.cluster, plan.resolution.default_bindings):
        export = plan.find_export(each.path, each.export)
        if export is None:
            missing.append(no_export(each))
        else:
            wanted.append(InitialBinding(each.name, each.path, each.export, export))
    return bind(stamp, wanted), tuple(missing)


def _life(plan: WorkspacePlan, bindings: Bindings, missing: Sequence[str]) -> ClusterLifecycle:
    requested = plan.requested or plan.resolution
    bound = plan.resolution.default_bindings and bindings.all_bound and not missing
    passed = {NAMESPACE_INITIALIZER, *([BINDINGS_INITIALIZER] if bound else [])}
    left = tuple(name for name in requested.initializers if name not in passed)
    return ClusterLifecycle(requested.initializers, requested.terminators, left)


def _bindings_conditions(resolution: Resolution, bindings: Bindings, missing: Sequence[str]) -> tuple[Condition, ...]:
    types = [INITIALIZED] if resolution.default_bindings else []
    types += [RECONCILED] if resolution.maintained_bindings else []
    return tuple(bindings_condition(type, bindings.waiting, missing) for type in types)


def _logical_cluster(
    plan: WorkspacePlan, stamp: ObjectStamp, bindings: Bindings, state: tuple[ClusterLifecycle, tuple[Condition, ...]]
) -> Manifest:
    (life, conditions), metadata = state, plan.workspace["metadata"]
    spec: Object = {}
    annotations: dict[str, str] = {}
    if plan.parent_cluster:
        spec["owner"] = owner_reference(plan)
    if (creator := owner_of(plan.workspace)) is not None:
        spec["createdBy"] = msgspec.to_builtins(creator)
        full = metadata["annotations"][wellknown.OWNER]
        annotations[wellknown.OWNER] = full if life.left else reduced_owner(creator)
    if plan.required_groups:
        annotations[wellknown.REQUIRED_GROUPS] = plan.required_groups
    if plan.generation:
        annotations[wellknown.MOVED_GENERATION] = plan.generation
    facts = ClusterFacts(
        shard=plan.shard.name,
        external_url=plan.shard.external_url,
        type=plan.resolution.type.qualified,
        locks=bindings.locks,
        life=life,
        spec=spec,
        annotations=annotations,
        conditions=conditions,
    )
    return logical_cluster(stamp, facts)


def _administrator(owner: Owner) -> str:
    """Return the user name to bind in the new cluster; "" for a service account without one home cluster.

    There the local name is another account's.
    """
    if not is_service_account(owner.username):
        return owner.username
    homes = owner.extra.get(CLUSTER_NAME, [])
    return global_name(owner.username, homes[0]) if len(homes) == 1 else ""


def _admin_binding(stamp: ObjectStamp, username: str) -> Manifest:
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": stamp.metadata("clusterrolebindings", ADMIN_BINDING),
        "roleRef": {"apiGroup": wellknown.RBAC_GROUP, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": wellknown.RBAC_GROUP, "kind": "User", "name": username}],
    }
    return Manifest(stamp.cluster, binding, CLUSTER_ROLE_BINDINGS)


def _workspace_annotations(workspace: Object, shard: str, cluster: str, phase: str) -> dict[str, str]:
    annotations: dict[str, str] = {
        **annotations_of(workspace),
        wellknown.SHARD: shard,
        wellknown.SHARD_HASH: hashes.shard_hash(shard),
        wellknown.SCHEDULED_CLUSTER: cluster,
    }
    if phase == READY and (owner := owner_of(workspace)) is not None:
        annotations[wellknown.OWNER] = reduced_owner(owner)
    return annotations


def _workspace_status(workspace: Object, cluster_status: Object, now: str) -> Object:
    left = tuple(cluster_status.get("initializers") or ())
    conditions = conditions_of(workspace)
    for condition in (initialized(left), Condition(SCHEDULED, TRUE)):
        conditions = set_condition(conditions, condition, now)
    status: Object = {"phase": cluster_status["phase"], "conditions": conditions}
    for field in ("initializers", "terminators"):
        if names := cluster_status.get(field):
            status[field] = list(names)
    return status
