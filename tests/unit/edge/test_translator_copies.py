"""When a copy in a mailbox is withdrawn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from atoll.edge.placement_translator.contents import Contents
from atoll.edge.placement_translator.copies import Copies
from atoll.edge.placement_translator.records import CopyRecords
from atoll.edge.placement_translator.topology import Topology
from atoll.edge.store import EdgeStore
from atoll.machinery.client.client import Client
from atoll.machinery.edge.categories import BuiltIns
from atoll.machinery.edge.names import EDGE_REVISION, ObjectRef
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import ServiceUnavailable
from unit.edge.test_translator_listing import WANTED, Sources

REF = ObjectRef("", "configmaps", "default", "a")
PATH = "/api/v1/namespaces/default/configmaps/a"


class Mailbox:
    """A client of a mailbox with one object; notes writes."""

    def __init__(self, live: Object) -> None:
        self.live, self.writes = live, list[tuple[str, str, Any]]()
        self.apply: Any = None

    def cluster(self, name: str) -> Mailbox:
        return self

    async def get(self, *_: object) -> Object:
        return self.live

    async def request(self, method: str, path: str, query: object = None, body: Any = None, kind: str = "") -> Object:
        self.writes.append((method, path, body))
        return {}


def live(sources: str, **metadata: object) -> Object:
    labels, notes = {"edge.kubestellar.io/projected": "yes"}, {"edge.kubestellar.io/sources": sources}
    stamp = {"name": "a", "namespace": "default", "uid": "u", "resourceVersion": "7", "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**stamp, "annotations": notes, **metadata}}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EdgeStore]:
    found = EdgeStore(tmp_path, allow_any_filesystem=True)
    yield found
    found.close()


async def put(store: EdgeStore, obj: Object, *read: str) -> Mailbox:
    """Look at a copy that no workspace sends; `read` are the workspaces that were read."""
    topology, records, mailbox = Topology(), CopyRecords(store), Mailbox(obj)
    topology.has_read = lambda cluster: cluster in read
    client = cast(Client, mailbox)
    contents = Contents(client, topology, BuiltIns(), records, lambda *_: None)
    copies = Copies(client, topology, contents, records, lambda *_: None)
    copies.found("m", REF, obj)
    await copies.put("m", REF, None, is_live_due=False)
    assert records.get("m", REF) is None
    return mailbox


async def test_a_copy_goes_once_all_its_workspaces_were_read(store: EdgeStore) -> None:
    mailbox = await put(store, live("w1,w2"), "w1", "w2")
    assert [(method, path, body["preconditions"]) for method, path, body in mailbox.writes] == [
        ("DELETE", PATH, {"uid": "u"})
    ]
    with pytest.raises(ServiceUnavailable, match="w2"):
        await put(store, live("w1,w2"), "w1")


async def test_what_somebody_else_made_stays(store: EdgeStore) -> None:
    mailbox = await put(store, live("w1", labels={}), "w1")
    assert mailbox.writes == []


async def test_finalizers_of_the_source_are_taken_off_and_others_are_not(store: EdgeStore) -> None:
    fields: Object = {"f:metadata": {"f:finalizers": {'v:"a/b"': {}}}}
    entry = {"manager": "placement-translator", "operation": "Apply", "fieldsV1": fields}
    obj = live("w1", finalizers=["a/b", "c/d"], managedFields=[entry], deletionTimestamp="2026-01-01T00:00:00Z")
    mailbox = await put(store, obj, "w1")
    patched = {"metadata": {"resourceVersion": "7", "finalizers": ["c/d"]}}
    assert mailbox.writes == [("PATCH", PATH, patched)]


STATUS: Object = {"manager": "else", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}}
OWN: Object = {"manager": "placement-translator", "operation": "Apply", "fieldsV1": {}}


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, False),
        ({"managedFields": [OWN]}, False),
        ({"managedFields": [OWN, STATUS]}, True),
        ({"annotations": {EDGE_REVISION: "edge/7"}}, True),
    ],
)
async def test_a_record_says_whether_its_copy_may_have_a_status(
    store: EdgeStore, metadata: Object, expected: bool
) -> None:
    topology, records, mailbox = Topology(), CopyRecords(store), Mailbox({})
    topology.senders = lambda mailbox: {"w": {"p"}}  # type: ignore[method-assign]
    copies = Copies(cast(Client, mailbox), topology, cast(Any, Sources()), records, lambda *_: None)

    async def apply(resource: object, obj: Object, manager: str) -> Object:
        return {**obj, "metadata": {**obj["metadata"], "uid": "u", "resourceVersion": "7", **metadata}}

    mailbox.apply = apply
    await copies.put("m", WANTED, None, is_live_due=False)
    found = records.get("m", WANTED)
    assert found is not None
    assert found.has_status is expected
