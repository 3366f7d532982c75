"""Namespaces with their default objects: a ServiceAccount and the root CA.

Bootstrap and new workspaces get them in the same submit; for namespaces that users make, controllers do the
same later. A namespace here is Active and has its label and finalizer as if the namespace controller had
seen it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from atoll.machinery.kcp.manifest import Manifest, ObjectStamp
from atoll.machinery.meta.types import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS

DEFAULT, KUBE_SYSTEM, KCP_SYSTEM = "default", "kube-system", "kcp-system"
ACCOUNT, ROOT_CA = "default", "kube-root-ca.crt"
NAME_LABEL = "kubernetes.io/metadata.name"
DESCRIPTION = "kubernetes.io/description"
_ROOT_CA_TEXT = (
    "Certificates that prove the API server to clients in this namespace; kept by the system, edits are reverted."
)


def namespaces(stamp: ObjectStamp, names: Sequence[str], ca_bundle: str) -> Iterator[Manifest]:
    """Each namespace, then its ServiceAccount `default` and its ConfigMap `kube-root-ca.crt` (PEM)."""
    for name in names:
        namespace = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": stamp.metadata("namespaces", name, labels={NAME_LABEL: name}),
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        }
        yield Manifest(stamp.cluster, namespace, NAMESPACES)
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": stamp.metadata("serviceaccounts", ACCOUNT, name),
        }
        yield Manifest(stamp.cluster, account, SERVICE_ACCOUNTS)
        root_ca = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": stamp.metadata("configmaps", ROOT_CA, name, {DESCRIPTION: _ROOT_CA_TEXT}),
            "data": {"ca.crt": ca_bundle},
        }
        yield Manifest(stamp.cluster, root_ca, CONFIG_MAPS)
