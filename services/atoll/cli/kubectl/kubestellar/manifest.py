"""The objects of a syncer in its edge cluster, in the order in which they are applied: pure.

Invariant: the kubeconfig in them leads to one mailbox alone, and its token file lies beside it, so that a renewed token
is a change of one key of the Secret.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec
import yaml

from atoll.machinery.client.target import CLUSTERS
from atoll.machinery.edge.names import LEASE_NAMESPACE, MAILBOX_VIEW
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.wellknown import RBAC_GROUP

MOUNT = "/kubestellar"
HEALTH_PORT = 8081
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """A syncer: its ID and namespace at the edge, SyncTarget, logical cluster of the mailbox, credential, process."""

    id: str
    namespace: str
    target: str
    uid: str
    cluster: str
    token: str
    image: str
    replicas: int
    qps: float
    burst: int
    #: What it may write at the edge, as `plural.group`; empty: everything.
    resources: tuple[str, ...] = ()


def syncer_id(name: str, uid: str) -> str:
    """Return the ID of the syncer of a SyncTarget."""
    number, digits = int.from_bytes(hashlib.sha224(uid.encode()).digest()), ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return f"kubestellar-syncer-{name}-{digits[:8]}"


def manifests(found: Registration, server: Object) -> Iterator[Object]:
    """Yield the seven objects, or eleven with narrow rights.

    `server` is a kubeconfig's cluster, with its authority as data.
    """
    placed = {"name": found.id, "namespace": found.namespace}
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": found.namespace}}
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": placed}
    yield {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": f"{found.id}-token",
            "namespace": found.namespace,
            "annotations": {"kubernetes.io/service-account.name": found.id},
        },
        "type": "kubernetes.io/service-account-token",
    }
    yield from rights(found)
    yield {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": placed,
        "stringData": {"kubeconfig": _kubeconfig(found, server), "token": found.token},
    }
    yield _deployment(found, placed)


def rights(found: Registration) -> Iterator[Object]:
    """Yield roles and bindings: a syncer writes whatever is placed on its cluster, or what it is narrowed to.

    Narrowed, it deletes no Namespace, as it does not see all that is in one.
    """
    everything = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["*"]}]
    if not found.resources:
        yield from _granted(found, everything)
        return
    by_group: dict[str, list[str]] = {}
    for each in found.resources:
        plural, _, group = each.partition(".")
        by_group.setdefault(group, []).append(plural)
    reading = ["get", "list", "watch"]
    rules: list[Object] = [
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": [*reading, "create", "patch"]},
        {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": reading},
        *(
            {"apiGroups": [group], "resources": plurals, "verbs": [*reading, "create", "delete", "patch"]}
            for group, plurals in by_group.items()
        ),
    ]
    yield from _granted(found, rules)
    token: Object = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [found.id], "verbs": ["patch"]}
    yield from _granted(found, [token], found.namespace)
    verbs = ["create", "get", "patch", "update"]
    yield from _granted(
        found, [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs}], LEASE_NAMESPACE
    )


def _granted(found: Registration, rules: list[Object], namespace: str = "") -> Iterator[Object]:
    """Yield a role of the syncer and its binding: in a Namespace, or in all of the cluster."""
    kind, place = ("Role", {"namespace": namespace}) if namespace else ("ClusterRole", {})
    head = {"apiVersion": f"{RBAC_GROUP}/v1", "metadata": {"name": found.id, **place}}
    yield {**head, "kind": kind, "rules": rules}
    reference = {"apiGroup": RBAC_GROUP, "kind": kind, "name": found.id}
    subjects = [{"kind": "ServiceAccount", "name": found.id, "namespace": found.namespace}]
    yield {**head, "kind": f"{kind}Binding", "roleRef": reference, "subjects": subjects}


def _kubeconfig(found: Registration, server: Object) -> str:
    base = str(server["server"]).partition(CLUSTERS)[0].rstrip("/")
    cluster = {**server, "server": f"{base}/services/{MAILBOX_VIEW}{CLUSTERS}{found.cluster}"}
    context = {"cluster": "default-cluster", "user": "default-user", "namespace": "default"}
    value = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "default-cluster", "cluster": cluster}],
        "users": [{"name": "default-user", "user": {"tokenFile": "token"}}],
        "contexts": [{"name": "default-context", "context": context}],
        "current-context": "default-context",
    }
    return yaml.safe_dump(value, sort_keys=False)


def _of_pod(variable: str, field: str) -> Object:
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": field}}}


def _deployment(found: Registration, metadata: Object) -> Object:
    labels = {"app": found.id}
    arguments = [
        f"--from-kubeconfig={MOUNT}/kubeconfig",
        f"--sync-target-name={found.target}",
        f"--sync-target-uid={found.uid}",
        f"--secret={found.id}",
        f"--qps={found.qps:g}",
        f"--burst={found.burst}",
        # The address of the Pod, whatever its family: what the kubelet asks.
        "--bind-address=$(POD_IP)",
        f"--port={HEALTH_PORT}",
    ]
    container = {
        "name": "kubestellar-syncer",
        "image": found.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["atoll", "syncer"],
        "args": arguments,
        "env": [_of_pod("NAMESPACE", "metadata.namespace"), _of_pod("POD_IP", "status.podIP")],
        "ports": [{"name": "health", "containerPort": HEALTH_PORT}],
        "livenessProbe": {"httpGet": {"path": "/livez", "port": "health"}},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "health"}},
        "volumeMounts": [{"name": "kubestellar", "mountPath": MOUNT, "readOnly": True}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    pod = {
        "serviceAccountName": found.id,
        "containers": [container],
        "volumes": [{"name": "kubestellar", "secret": {"secretName": found.id, "optional": False}}],
    }
    spec = {
        "replicas": found.replicas,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
