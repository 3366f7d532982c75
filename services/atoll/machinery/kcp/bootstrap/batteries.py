"""Batteries: users, workspace types and accounts that a start includes unless the operator leaves them out, as in kcp.

`ShardConfig` reads the setting through `included`, `objects` adds what the batteries hold. Invariant: a battery that is
left out later deletes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from atoll.machinery.kcp.manifest import Manifest, ObjectStamp
from atoll.machinery.kcp.namespaces import DEFAULT as NAMESPACE
from atoll.machinery.meta.names import ROOT, ResourceType
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.types import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, SECRETS, SERVICE_ACCOUNTS
from atoll.machinery.meta.wellknown import RBAC_GROUP

WORKSPACE_TYPES, ADMIN, USER, METRICS_VIEWER = ALL = "workspace-types", "admin", "user", "metrics-viewer"
DEFAULT = (WORKSPACE_TYPES, ADMIN)
DESCRIPTION = (
    "comma separated list of workspace-types (organization and team), admin (users kcp-admin and shard-admin), user"
    " (a user without groups), metrics-viewer (an account that reads metrics); +name adds to the default, -name removes"
)
#: Annotation of what a battery brings.
BATTERY = "bootstrap.kcp.io/battery"
_TYPES = ("organization", "team")
#: Name of the role and its binding, and name of the account and its Secret.
_VIEWER, _ACCOUNT = "metrics-viewer", "metrics"


def included(names: Sequence[str]) -> frozenset[str]:
    """Return the batteries of a setting. Raises ValueError."""
    signs = {name[:1] for name in names if name.startswith(("+", "-"))}
    bare = [name.removeprefix("+").removeprefix("-") if signs else name for name in names]
    for name in bare:
        if name not in ALL:
            raise ValueError(f"batteries-included: there is no battery {name!r}, only {', '.join(ALL)}")
    if not signs:
        found = frozenset(names)
    elif all(name.startswith(("+", "-")) for name in names):
        taken = {name[1:] for name in names if name.startswith("-")}
        found = frozenset({*DEFAULT, *(name[1:] for name in names if name.startswith("+"))} - taken)
    else:
        raise ValueError("batteries-included: give all names with + or -, or none")
    if USER in found and ADMIN not in found:
        raise ValueError("batteries-included: user needs admin, whose kubeconfig holds its token")
    return found


def flags(found: Collection[str]) -> tuple[str, ...]:
    """Return the setting that includes exactly these batteries."""
    return tuple(("+" if name in found else "-") + name for name in ALL)


def workspace_types(specs: Mapping[str, Object], found: Collection[str]) -> dict[str, Object]:
    """Return the types of root: without their battery those that no other part needs, with `universal` as default."""
    if WORKSPACE_TYPES in found:
        return dict(specs)
    kept = {name: spec for name, spec in specs.items() if name not in _TYPES}
    return {**kept, ROOT: {**kept[ROOT], "defaultChildWorkspaceType": {"name": "universal", "path": ROOT}}}


def metrics_viewer(stamp: ObjectStamp) -> Iterator[Manifest]:
    """Yield the account of a metrics collector, the Secret with its token, and its right to read /metrics."""
    subjects = [
        {"kind": "ServiceAccount", "name": _ACCOUNT, "namespace": NAMESPACE},
        {"kind": "User", "name": _VIEWER, "apiGroup": RBAC_GROUP},
    ]
    role = {"rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]}
    binding = {"roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": _VIEWER}, "subjects": subjects}
    rbac = f"{RBAC_GROUP}/v1"
    yield _manifest(stamp, CLUSTER_ROLES, {"apiVersion": rbac, "kind": "ClusterRole", **role}, _VIEWER)
    yield _manifest(
        stamp, CLUSTER_ROLE_BINDINGS, {"apiVersion": rbac, "kind": "ClusterRoleBinding", **binding}, _VIEWER
    )
    yield _manifest(stamp, SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount"}, _ACCOUNT, NAMESPACE)
    secret = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token"}
    note = {"kubernetes.io/service-account.name": _ACCOUNT}
    yield _manifest(stamp, SECRETS, secret, _ACCOUNT, NAMESPACE, note)


def _manifest(
    stamp: ObjectStamp,
    type: ResourceType,
    obj: Object,
    name: str,
    namespace: str = "",
    annotations: Mapping[str, str] | None = None,
) -> Manifest:
    noted = {BATTERY: METRICS_VIEWER, **(annotations or {})}
    metadata = stamp.metadata(type.resource, name, namespace, noted)
    return Manifest(stamp.cluster, {**obj, "metadata": metadata}, type)
