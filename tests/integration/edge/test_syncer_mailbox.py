"""What a syncer needs of a mailbox: its view has it, and so has the mailbox in memory that other tests use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource, WatchEvent
from atoll.machinery.edge.names import EDGE_REVISION, THE_ONE, UPSYNCED
from atoll.machinery.meta.objects import Object, annotations_of
from atoll.machinery.meta.status import AlreadyExists, Conflict, NotFound
from atoll.syncer.mailbox import ITEMS
from harness.clients.api import configmap
from harness.servers.in_process.mailbox_view import MailboxView
from harness.waits import until
from integration.edge.real_mailbox import RealMailbox, real_mailbox, world

__all__ = ["real_mailbox", "world"]

CONFIG = "syncerconfigs.edge.kubestellar.io::the-one"
GROUP = "shapes.example.com"
CONFIGMAPS, CIRCLES = Resource("", "v1", "configmaps"), Resource(GROUP, "v1", "circles")
LEASES, EVENTS = Resource("coordination.k8s.io", "v1", "leases"), Resource("", "v1", "events")


@pytest.fixture(params=["memory", "view"])
def served(request: pytest.FixtureRequest) -> RealMailbox | None:
    """A mailbox of a shard, or None for one in memory."""
    return request.getfixturevalue("real_mailbox") if request.param == "view" else None


@pytest.fixture
async def mailbox(served: RealMailbox | None) -> AsyncIterator[MailboxView | RealMailbox]:
    if served is not None:
        yield served
        return
    async with MailboxView.serving() as view:
        yield view


@pytest.fixture
async def client(mailbox: MailboxView | RealMailbox) -> AsyncIterator[Client]:
    """The syncer's own."""
    async with Client(mailbox.target, manager="kubestellar-syncer") as found:
        yield found


async def items(client: Client, **options: str) -> tuple[dict[str, Object], str]:
    """All items by name, and the revision of the list."""
    found = await client.list(ITEMS, **options)
    return {each["metadata"]["name"]: each for each in found["items"]}, found["metadata"]["resourceVersion"]


async def follow(client: Client, since: str, count: int) -> list[WatchEvent]:
    """The next events of a watch."""
    found: list[WatchEvent] = []
    async with asyncio.timeout(30.0), client.watch(ITEMS, resourceVersion=since) as events:
        async for event in events:
            found += [event] if event.type != "BOOKMARK" else []
            if len(found) == count:
                break
    return found


async def test_items_hold_what_is_listed_and_changes_follow_the_list_in_order(
    mailbox: MailboxView | RealMailbox, client: Client
) -> None:
    mailbox.place(*(configmap(name, {"a": "1"}, namespace="default") for name in ("one", "two")))
    found, revision = await items(client, limit="1")
    assert found.keys() >= {"configmaps.:default:one", "configmaps.:default:two", CONFIG}
    item = found["configmaps.:default:one"]
    assert (item["resource"], item["object"]["data"]) == ("configmaps", {"a": "1"})
    assert item["metadata"]["resourceVersion"] == item["object"]["metadata"]["resourceVersion"]
    assert found[CONFIG]["object"]["metadata"]["name"] == THE_ONE
    three = mailbox.place(configmap("three", {"a": "1"}, namespace="default"))
    added, config = await follow(client, revision, 2)
    assert (added.type, added.object["metadata"]["name"]) == ("ADDED", "configmaps.:default:three")
    assert (config.type, config.object["metadata"]["name"]) == ("MODIFIED", CONFIG)
    at = int(config.object["metadata"]["resourceVersion"])
    assert int(added.object["metadata"]["resourceVersion"]) < at
    mailbox.withdraw(*three)
    gone, config = await follow(client, str(at), 2)
    assert (gone.type, gone.object["object"]["metadata"]["name"]) == ("DELETED", "three")
    assert config.object["metadata"]["name"] == CONFIG


async def test_a_status_is_written_to_the_revision_that_was_seen_with_where_it_is_from(
    mailbox: MailboxView | RealMailbox, client: Client
) -> None:
    metadata = {"name": "c", "namespace": "default"}
    circle = {"apiVersion": f"{GROUP}/v1", "kind": "Circle", "metadata": metadata, "spec": {"replicas": 1}}
    (ref,) = mailbox.place(circle, resource="circles")
    found, _ = await items(client)
    seen = found[f"circles.{GROUP}:default:c"]["object"]["metadata"]["resourceVersion"]
    status = {"replicas": 1}
    patch: Object = {"metadata": {"annotations": {EDGE_REVISION: "uid/5"}}, "status": status}
    for revision in (seen, "1"):
        patch["metadata"]["resourceVersion"] = revision
        try:
            answer = await client.patch(CIRCLES, "c", patch, "default", "status")
        except Conflict:
            assert revision == "1"
        else:
            assert revision == seen
            assert (answer["status"], annotations_of(answer)[EDGE_REVISION]) == (status, "uid/5")
    assert mailbox.status(ref) == status


async def test_the_status_of_the_one_the_lease_and_events_are_the_syncers(
    mailbox: MailboxView | RealMailbox, client: Client
) -> None:
    mailbox.place(configmap("one", {"a": "1"}, namespace="default"))
    configs = Resource("edge.kubestellar.io", "v2alpha1", "syncerconfigs", namespaced=False)
    answer = await client.patch(configs, THE_ONE, {"status": {"appliedRevision": "5"}}, subresource="status")
    assert answer["status"]["appliedRevision"] == "5"
    head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    metadata = {"name": "syncer", "namespace": "default"}
    lease = {**head, "metadata": metadata, "spec": {"holderIdentity": "one", "leaseDurationSeconds": 90}}
    made = await client.create(LEASES, lease)
    with pytest.raises(AlreadyExists):
        await client.create(LEASES, lease)
    await client.update(LEASES, {**made, "spec": {**made["spec"], "holderIdentity": "two"}})
    with pytest.raises(Conflict):
        await client.update(LEASES, {**made, "spec": {**made["spec"], "holderIdentity": "three"}})
    second = await client.get(LEASES, "syncer", "default")
    assert second["spec"]["holderIdentity"] == "two"
    patch = {
        "metadata": {"resourceVersion": second["metadata"]["resourceVersion"]},
        "spec": {"renewTime": "2026-11-27T04:00:00.000000Z"},
    }
    renewed = await client.patch_for_metadata(LEASES, "syncer", patch, "default")
    with pytest.raises(Conflict):
        await client.patch_for_metadata(LEASES, "syncer", patch, "default")
    third = await client.get(LEASES, "syncer", "default")
    assert third["metadata"]["resourceVersion"] == renewed["resourceVersion"]
    assert third["spec"] == {**second["spec"], **patch["spec"]}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "one.1", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "ConfigMap", "name": "one", "namespace": "default"},
        "type": "Normal",
        "reason": "Adopted",
        "message": "text",
        "source": {"component": "kubestellar-syncer"},
    }
    await client.create(EVENTS, event)


async def test_what_comes_up_is_made_found_changed_and_deleted(
    mailbox: MailboxView | RealMailbox, client: Client
) -> None:
    mailbox.upsync([{"apiGroup": "", "resources": ["configmaps"], "namespaces": ["*"], "names": ["*"]}])
    copy = configmap("up", {"a": "1"}, namespace="default", annotations={UPSYNCED: "ConfigMap/default/up"})

    async def made() -> Any:
        try:
            return await client.create(CONFIGMAPS, copy)
        except NotFound:
            return None

    first = await until(made, "the kind is served")
    with pytest.raises(AlreadyExists):
        await client.create(CONFIGMAPS, copy)
    second = await client.update(CONFIGMAPS, {**first, "data": {"a": "2"}})
    with pytest.raises(Conflict):
        await client.update(CONFIGMAPS, {**first, "data": {"a": "3"}})
    listed = (await client.list(CONFIGMAPS))["items"]
    assert [each["data"] for each in listed if each["metadata"]["name"] == "up"] == [{"a": "2"}]
    metadata = second["metadata"]
    conditions = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions}
    await client.request("DELETE", CONFIGMAPS.path("default", "up"), None, options)
    with pytest.raises(NotFound):
        await client.get(CONFIGMAPS, "up", "default")
