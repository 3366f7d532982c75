"""What a Kubernetes cluster has from its start, made once in a workspace that binds root's export `kubernetes`.

ServiceCIDR `kubernetes`; Service, Endpoints and EndpointSlice `kubernetes` of the API itself, in the namespace
`default`; the two PriorityClasses of the system. Watches: APIBindings. Writes: those of the objects that are missing,
together. Nothing is written again when a user deletes or changes it, until its binding changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, Iterator
from ipaddress import ip_address
from urllib.parse import urlsplit

from atoll.machinery.apiserver.writing.batch import LOST
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.control.manager import Controller
from atoll.machinery.control.queue import Requeue
from atoll.machinery.kcp.apis.kubernetes_export import BINDING_LABEL
from atoll.machinery.kinds.kubernetes.cluster_defaults import API_ADDRESS, CIDRS, SYSTEM_CLASSES
from atoll.machinery.meta import times
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode, encode_json
from atoll.machinery.meta.status import AlreadyExists, Conflict, Forbidden, Invalid, NotFound
from atoll.machinery.meta.types import API_BINDINGS, NAMESPACES
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.storage.contract import Flag, GateState, LogEntry, Operation

_NAME, _NAMESPACE = "kubernetes", "default"
_NETWORKING, _SCHEDULING = "networking.k8s.io", "scheduling.k8s.io"
_LABELS = {"component": "apiserver", "provider": "kubernetes"}
_MARK = BINDING_LABEL[1].encode()
#: After a concurrent write.
_SOON = Backoff(0.05, 10.0)


class ClusterObjects(Controller):
    """Key: cluster. `identity` is that of root's export, `url` the shard's own."""

    name = "kubernetes-cluster-objects"
    workers = 2

    def __init__(self, loopback: Loopback, identity: str, url: str) -> None:
        self._loopback, self._identity = loopback, identity
        self._objects, self._is_compiled = dict(_objects(url)), False

    def watches(self, type: ResourceType) -> bool:
        return type == API_BINDINGS

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        if entry.operation is not Operation.DELETED and _MARK in entry.value:
            yield entry.key.cluster

    def all_keys(self) -> Iterable[Hashable]:
        with self._loopback.store.snapshot() as snapshot:
            return {key.cluster for key in snapshot.labelled(*BINDING_LABEL, API_BINDINGS)}

    async def reconcile(self, cluster: str) -> Requeue:
        if not self._is_compiled and (missing := list(self._missing(cluster))):
            await asyncio.to_thread(_compile, missing)
            self._is_compiled = True
        batch = self._loopback.batch()
        try:
            for target, obj in self._missing(cluster):
                batch.create(target, obj, whole="status" in obj)
            await batch.submit()
        except LOST:
            return _SOON
        except (AlreadyExists, Conflict, Forbidden, Invalid, NotFound):
            # The workspace has something else there, or no room; the user's objects count.
            return None
        return None

    def _missing(self, cluster: str) -> Iterator[tuple[Target, Object]]:
        """Yield the objects to create; none before the binding is bound, or where the namespace is not active."""
        found: list[tuple[Target, Object]] = []
        with self._loopback.store.snapshot() as snapshot:
            namespace = snapshot.get(ObjectKey(NAMESPACES, cluster, "", _NAMESPACE))
            is_active = namespace is not None and not namespace.flags & Flag.DELETING
            if not is_active or snapshot.gate(cluster).state is GateState.DELETING:
                return
            catalog = self._loopback.core.catalogs.of(snapshot, cluster)
            for (group, resource, name), obj in self._objects.items():
                kind = catalog.of_type(ResourceType(group, resource, self._identity))
                if kind is None:
                    return
                target = Target(kind, cluster, _NAMESPACE if kind.namespaced else "", name)
                if not snapshot.revision_of(ObjectKey(kind.type, cluster, target.namespace, name)):
                    status = {"status": _ready()} if resource == "servicecidrs" else {}
                    found.append((target, {"apiVersion": kind.api_version, "kind": kind.kind, **obj, **status}))
        yield from found


def _compile(missing: Iterable[tuple[Target, Object]]) -> None:
    """Compile the schemas of some objects beside the event loop, which would not go on for 20 ms."""
    for target, obj in missing:
        if target.kind.schema is not None:
            target.kind.schema.normalize(decode(encode_json(obj)))


def _objects(url: str) -> Iterator[tuple[tuple[str, str, str], Object]]:
    """Yield the objects by group, resource and name; the range of addresses before what has one."""
    parts = urlsplit(url)
    port = {"name": "https", "port": parts.port or 443, "protocol": "TCP"}
    addresses = _reachable(parts.hostname or "")
    named: Object = {"metadata": {"name": _NAME}}
    yield (_NETWORKING, "servicecidrs", _NAME), {**named, "spec": {"cidrs": list(CIDRS)}}
    spec = {
        "type": "ClusterIP",
        "clusterIP": API_ADDRESS,
        "ipFamilyPolicy": "SingleStack",
        "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port["port"]}],
    }
    yield ("", "services", _NAME), {"metadata": {"name": _NAME, "labels": _LABELS}, "spec": spec}
    skipped = {"endpointslice.kubernetes.io/skip-mirror": "true"}
    subsets = [{"addresses": [{"ip": each} for each in addresses], "ports": [port]}] if addresses else []
    yield ("", "endpoints", _NAME), {"metadata": {"name": _NAME, "labels": skipped}, "subsets": subsets}
    ready = [{"addresses": [each], "conditions": {"ready": True}} for each in addresses]
    is_ipv6 = any(ip_address(each).version == 6 for each in addresses)
    slice = {
        "metadata": {"name": _NAME, "labels": {"kubernetes.io/service-name": _NAME}},
        "addressType": "IPv6" if is_ipv6 else "IPv4",
        "endpoints": ready,
        "ports": [port],
    }
    yield ("discovery.k8s.io", "endpointslices", _NAME), slice
    for name, (value, description) in SYSTEM_CLASSES.items():
        body = {"metadata": {"name": name}, "value": value, "description": description}
        yield (_SCHEDULING, "priorityclasses", name), body


def _ready() -> Object:
    """Return the status of a ServiceCIDR whose addresses are given out."""
    ready = {"type": "Ready", "status": "True", "reason": "", "message": "Kubernetes Service CIDR is ready"}
    return {"conditions": [{**ready, "lastTransitionTime": times.now()}]}


def _reachable(host: str) -> list[str]:
    """Return the address of the API, if it is one that others could reach."""
    try:
        address = ip_address(host)
    except ValueError:
        return []
    return [] if address.is_loopback or address.is_link_local or address.is_unspecified else [str(address)]
