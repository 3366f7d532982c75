"""Addresses and node ports of a workspace, each held by one Service: records beside it, written in its transaction.

The record of an address is its IPAddress, that of a node port an object of a type that no kind serves. Invariant: a
record is created where there was none, or replaced at the revision that was read; two writers of one number therefore
conflict in the store, and the later one plans again with what it then sees. A record whose Service is gone, or holds
the number no more, is free, so that a Service that went without admission leaves nothing taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address

import msgspec

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.kinds.checks import items, mapping, text
from atoll.machinery.kinds.kubernetes.service_fields import family_of, has_address, has_health_port, node_ports
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode, encode, labels_of, spec_of
from atoll.machinery.meta.types import NODE_PORTS
from atoll.machinery.meta.uids import new_uid
from atoll.machinery.storage.contract import Delete, Mutation, Put, Record

_FAMILY, _MANAGED_BY = "ipaddress.kubernetes.io/ip-family", "ipaddress.kubernetes.io/managed-by"
_ALLOCATOR = "ipallocator.k8s.io"


def held(service: Object) -> frozenset[str]:
    """Return what a Service holds: its addresses in canonical form, and its node ports."""
    spec = spec_of(service)
    found = {str(port) for port in node_ports(spec)}
    if has_health_port(spec) and spec.get("healthCheckNodePort"):
        found.add(str(spec["healthCheckNodePort"]))
    if has_address(spec):
        for each in items(spec, "clusterIPs"):
            with suppress(ValueError):
                found.add(str(ip_address(each)))
    return frozenset(found)


class Allocations(msgspec.Struct, frozen=True):
    """The records of a workspace, for the writes of Services of one type."""

    view: View
    services: ResourceType
    cluster: str
    #: What Services hold, read once each: one may hold thousands.
    seen: dict[ObjectKey, frozenset[str]] = {}

    @property
    def addresses(self) -> ResourceType:
        """The type of IPAddresses of the same export."""
        return ResourceType("networking.k8s.io", "ipaddresses", self.services.identity)

    def key(self, number: str) -> ObjectKey:
        """Return the key of the record of an address or a port."""
        type = NODE_PORTS if number.isdigit() else self.addresses
        return ObjectKey(type, self.cluster, "", number)

    def is_free(self, number: str) -> bool:
        """Whether no Service holds it, and nobody reserved it by an IPAddress of its own."""
        record = self.view.get(self.key(number))
        return record is None or self._is_stale(record)

    def _is_stale(self, record: Record) -> bool:
        obj = decode(record.value)
        if record.key.type != NODE_PORTS and labels_of(obj).get(_MANAGED_BY) != _ALLOCATOR:
            return False
        return self.holder(obj) is None

    def holder(self, record: Object) -> ObjectKey | None:
        """Return the key of the Service that holds what a record is about, or None."""
        parent = mapping(record, "spec", "parentRef")
        if (text(parent, "group"), text(parent, "resource")) != ("", self.services.resource):
            return None
        key = ObjectKey(self.services, self.cluster, text(parent, "namespace"), text(parent, "name"))
        if key not in self.seen:
            found = self.view.get(key)
            self.seen[key] = held(decode(found.value)) if found is not None else frozenset()
        return key if record["metadata"]["name"] in self.seen[key] else None

    def changes(self, new: Object | None, old: Object | None, now: str) -> Iterator[Mutation]:
        """Yield the writes of records for a Service that was `old` and becomes `new`; None where there is none."""
        wanted = held(new) if new is not None else frozenset()
        before = held(old) if old is not None else frozenset()
        for number in sorted(wanted - before):
            key = self.key(number)
            found = self.view.get(key)
            stale = found.revision if found is not None and self._is_stale(found) else 0
            assert new is not None
            value, hole = encode(_record(key, new["metadata"], now))
            yield Put(key, value, hole, stale)
        for number in sorted(before - wanted):
            found = self.view.get(self.key(number))
            if found is not None and self._is_of(found, old):
                yield Delete(found.key, found.revision)

    def _is_of(self, record: Record, service: Object | None) -> bool:
        parent = mapping(decode(record.value), "spec", "parentRef")
        metadata = service["metadata"] if service is not None else {}
        return (parent.get("namespace"), parent.get("name")) == (metadata.get("namespace"), metadata.get("name"))


def _record(key: ObjectKey, service: Object, now: str) -> Object:
    """Return the object that says which Service holds a number."""
    metadata: Object = {
        "name": key.name,
        "uid": new_uid(),
        "creationTimestamp": now,
        "annotations": {wellknown.CLUSTER: key.cluster},
    }
    is_port = key.type == NODE_PORTS
    if not is_port:
        metadata["labels"] = {_FAMILY: family_of(key.name), _MANAGED_BY: _ALLOCATOR}
    parent = {"group": "", "resource": "services", "namespace": service["namespace"], "name": service["name"]}
    return {
        "apiVersion": "internal.atoll.dev/v1" if is_port else "networking.k8s.io/v1",
        "kind": "NodePort" if is_port else "IPAddress",
        "metadata": metadata,
        "spec": {"parentRef": parent},
    }
