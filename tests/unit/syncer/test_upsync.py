"""Copies in the mailbox of objects that change while they are brought there."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.syncset import SyncSet, sync_set
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import NotFound
from atoll.syncer.state import State
from atoll.syncer.upsync import Upsync

REF = ObjectRef("", "configmaps", "logs", "line")
UPSYNC_SET = {"apiGroup": "", "resources": ["configmaps"], "namespaces": ["logs"], "names": ["*"]}
CONFIG: Object = {"kind": "SyncerConfig", "metadata": {"name": "the-one"}, "spec": {"upsync": [UPSYNC_SET]}}
LIVE: Object = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "line", "namespace": "logs", "uid": "1", "resourceVersion": "5"},
    "data": {"a": "1"},
}


class Center:
    """The mailbox and the edge cluster at once; `meanwhile` happens before a creation is answered."""

    uid, is_complete = "edge", True

    def __init__(self) -> None:
        self.carried: SyncSet = sync_set([CONFIG])
        self.live: Object | None = copy.deepcopy(LIVE)
        self.stored: Object | None = None
        self.upsync: Any = None

    def refs(self) -> list[ObjectRef]:
        return [REF] if self.live is not None else []

    def get(self, ref: ObjectRef) -> Object | None:
        assert ref == REF
        return self.live

    def is_read(self, kind: tuple[str, str]) -> bool:
        return kind == REF.kind


class Client:
    """What the syncer asks of the mailbox's view."""

    def __init__(self, center: Center) -> None:
        self._center = center

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        if self._center.stored is None:
            raise NotFound(f"{resource.plural} {namespace}/{name} not found")
        return self._center.stored

    async def create(self, resource: Resource, obj: Object) -> Object:
        metadata = {**obj["metadata"], "uid": "copy", "resourceVersion": "9"}
        self._center.stored = {**obj, "metadata": metadata}
        self._center.live = None
        self._center.upsync.changed(REF)
        return self._center.stored

    async def request(self, method: str, path: str, query: Mapping[str, str] | None, body: Object) -> Object:
        assert (method, body["preconditions"]) == ("DELETE", {"uid": "copy", "resourceVersion": "9"})
        self._center.stored = None
        return {}


async def test_an_object_that_goes_while_its_copy_is_made_leaves_none() -> None:
    center = Center()
    client: Any = Client(center)
    mailbox: Any = center
    edge: Any = center
    state = State("s", "edge", None)
    upsync = center.upsync = Upsync(client, mailbox, edge, state, lambda: True)
    await upsync.reconcile(REF)
    assert center.stored is not None
    assert len(upsync.queue) == 1, "it is looked at again"
    await upsync.reconcile(REF)
    assert center.stored is None
    assert not state.copies
