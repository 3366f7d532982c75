"""Default objects of every active namespace: ServiceAccount `default` and ConfigMap `kube-root-ca.crt`.

Watches: Namespaces and the two objects. Writes: the objects where they are missing or changed. Converges because both
are compared with their desired state each time; nothing is created in a terminating namespace.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable

from atoll.controllers.content_deleter import HELD
from atoll.machinery.apiserver.call.errors import OverLimit
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.control.manager import ALL_OPERATIONS, Controller
from atoll.machinery.control.queue import Requeue
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import rawscan
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import AlreadyExists, Conflict, Forbidden, NotFound
from atoll.machinery.meta.types import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS
from atoll.machinery.storage.contract import Flag, GateState, LogEntry, Operation, Scope

#: Nothing is created in a cluster that is terminating or moving to another shard.
_CLOSED = frozenset({GateState.DELETING, GateState.MOVING})
_BINARY = rawscan.member("binaryData")
ACCOUNT, ROOT_CA = "default", "kube-root-ca.crt"
DESCRIPTION = (
    "Certificates that prove the API server to clients in this namespace; kept by the system, edits are reverted."
)


def service_account() -> Object:
    """Return the default ServiceAccount."""
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}


def root_ca(certificate: str) -> Object:
    """Return the ConfigMap with the serving CA."""
    annotations = {"kubernetes.io/description": DESCRIPTION}
    metadata = {"name": ROOT_CA, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"ca.crt": certificate}}


class NamespaceDefaults(Controller):
    """Key: (cluster, namespace name)."""

    name = "namespacedefaults"
    workers = 2

    def __init__(self, loopback: Loopback, accounts: Kind, configmaps: Kind, certificate: str) -> None:
        self._loopback, self._accounts, self._configmaps = loopback, accounts, configmaps
        self._certificate = certificate
        self._data = rawscan.members({"data": {"ca.crt": certificate}})

    def watches(self, type: ResourceType) -> bool:
        return type in {NAMESPACES, SERVICE_ACCOUNTS, CONFIG_MAPS}

    def operations(self, type: ResourceType) -> Collection[Operation]:
        if type == NAMESPACES:
            return {Operation.ADDED}
        return {Operation.DELETED} if type == SERVICE_ACCOUNTS else ALL_OPERATIONS - {Operation.ADDED}

    def ends_with_cluster(self, type: ResourceType) -> bool:
        return True

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        key = entry.key
        if key.type == NAMESPACES:
            yield key.cluster, key.name
        elif key.name == (ACCOUNT if key.type == SERVICE_ACCOUNTS else ROOT_CA):
            yield key.cluster, key.namespace

    def all_keys(self) -> Iterable[Hashable]:
        for key in self._loopback.keys(Scope(NAMESPACES)):
            yield key.cluster, key.name

    async def reconcile(self, key: tuple[str, str]) -> Requeue:
        cluster, name = key
        with self._loopback.store.snapshot() as snapshot:
            namespace = snapshot.get(ObjectKey(NAMESPACES, cluster, "", name))
            if namespace is None or namespace.flags & Flag.DELETING or snapshot.gate(cluster).state in _CLOSED:
                return None
            account = snapshot.revision_of(ObjectKey(SERVICE_ACCOUNTS, cluster, name, ACCOUNT))
            certificate = snapshot.get(ObjectKey(CONFIG_MAPS, cluster, name, ROOT_CA))
        if account and certificate is not None and self._is_right(certificate.value):
            # The common case: the objects of a new workspace are complete.
            return None
        try:
            if not account:
                await self._loopback.create(Target(self._accounts, cluster, name, ACCOUNT), service_account())
            await self._root_ca(cluster, name)
        except OverLimit:
            raise
        except (AlreadyExists, Conflict, NotFound):
            # A concurrent write: that log entry enqueues the key if needed.
            return None
        except Forbidden:
            # The namespace is terminating, or what its workspace configured refuses.
            return HELD
        return None

    def _is_right(self, value: bytes) -> bool:
        """Return whether a stored ConfigMap holds the certificate only, without decoding it."""
        return self._data in value and _BINARY not in value

    async def _root_ca(self, cluster: str, namespace: str) -> None:
        wanted = root_ca(self._certificate)
        target = Target(self._configmaps, cluster, namespace, ROOT_CA)
        found = self._loopback.get(CONFIG_MAPS, cluster, namespace, ROOT_CA)
        if found is None:
            await self._loopback.create(target, wanted)
        elif found.get("data") != wanted["data"] or found.get("binaryData"):
            changed = {**found, "data": wanted["data"]}
            changed.pop("binaryData", None)
            await self._loopback.update(target, changed)
