"""A workspace over a dictionary in which plug-ins for Kubernetes' own kinds admit writes: no server, no disk.

`create`, `update` and `remove` run the plug-ins like a request that passes all other checks, and apply what they plan.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from types import MappingProxyType

import msgspec

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.apiserver.call.call import Call
from atoll.machinery.apiserver.call.requestinfo import RequestInfo
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.names import CORE, ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.uids import new_uid
from atoll.machinery.meta.user import User
from atoll.machinery.storage.contract import Delete, Mutation, Put, Record, RevisionConflict
from harness.models.rbac_snapshot import FakeStore

CLUSTER, NAMESPACE, IDENTITY = "here", "default", "k" * 64
NOW = "2026-11-26T12:00:00Z"
USER = User("alice", ())
_KINDS = {"services": "Service", "pods": "Pod", "persistentvolumeclaims": "PersistentVolumeClaim"}


class KubernetesWorkspace(FakeStore):
    """One workspace with its plug-ins. `identity` is that of its kinds; `builtin` as in `Kind`."""

    def __init__(self, plugins: Sequence[Plugin], *, identity: str = IDENTITY, builtin: bool = True) -> None:
        super().__init__()
        self.plugins, self.identity, self.builtin = plugins, identity, builtin

    def type(self, resource: str, group: str = "") -> ResourceType:
        return ResourceType(group, resource, CORE if resource == "serviceaccounts" else self.identity)

    def key(self, resource: str, name: str, *, group: str = "", namespace: str = NAMESPACE) -> ObjectKey:
        return ObjectKey(self.type(resource, group), CLUSTER, namespace, name)

    def add(self, key: ObjectKey, obj: Object) -> None:
        """Store an object without admission."""
        metadata = {"name": key.name, **({"namespace": key.namespace} if key.namespace else {})}
        stored = {**obj, "metadata": {**metadata, **obj.get("metadata", {})}}
        self.records[key] = Record(key, self._touch(key), msgspec.json.encode(stored))

    def stored(self, key: ObjectKey) -> Object:
        found: Object = msgspec.json.decode(self.records[key].value)
        return found

    def create(self, resource: str, name: str, body: Object, *, group: str = "", namespace: str = NAMESPACE) -> Object:
        key = self.key(resource, name, group=group, namespace=namespace)
        metadata = {"name": name, "namespace": namespace, "uid": new_uid(), **body.get("metadata", {})}
        review = self.review(key, "create", copy.deepcopy({**body, "metadata": metadata}), None)
        return self._admitted(key, review)

    def update(self, key: ObjectKey, body: Object, subresource: str = "") -> Object:
        old = self.stored(key)
        review = self.review(key, "update", copy.deepcopy({"metadata": old["metadata"], **body}), old)
        review.subresource = subresource
        return self._admitted(key, review)

    def remove(self, key: ObjectKey) -> None:
        review = self.review(key, "delete", None, self.stored(key))
        self._run(review)
        self._apply([Delete(key, self.records[key].revision), *review.writes])

    def review(self, key: ObjectKey, operation: str, obj: Object | None, old: Object | None) -> Review:
        type = key.type
        kind = Kind(
            group=type.group,
            version="v1",
            kind=_KINDS.get(type.resource, type.resource.capitalize()),
            plural=type.resource,
            singular="",
            identity=type.identity,
            builtin=self.builtin,
            namespaced=bool(key.namespace),
        )
        info = RequestInfo("", CLUSTER, "", operation, MappingProxyType({}), namespace=key.namespace, name=key.name)
        call = Call(info=info, user=USER, cluster=CLUSTER, kind=kind, now=NOW)
        resource = (type.group, type.resource)
        return Review(call=call, operation=operation, obj=obj, old=old, view=self, group_resource=resource)

    def _run(self, review: Review) -> None:
        found = [each for each in self.plugins if each.resources is None or review.group_resource in each.resources]
        for plugin in found:
            plugin.mutate(review)
        for plugin in found:
            plugin.validate(review)

    def _admitted(self, key: ObjectKey, review: Review) -> Object:
        self._run(review)
        value = msgspec.json.encode(review.result)
        self._apply([Put(key, value, 0, self.revision_of(key)), *review.writes])
        return review.result

    def _apply(self, mutations: Sequence[Mutation]) -> None:
        """Apply all or nothing, as a store does."""
        for mutation in mutations:
            assert isinstance(mutation, Put | Delete)
            actual = self.revision_of(mutation.key)
            if actual != mutation.expected:
                raise RevisionConflict(mutation.key, mutation.expected, actual)
        for mutation in mutations:
            assert isinstance(mutation, Put | Delete)
            revision = self._touch(mutation.key)
            if isinstance(mutation, Put):
                self.records[mutation.key] = Record(mutation.key, revision, mutation.value)
            else:
                del self.records[mutation.key]
