"""What a mailbox lists is at the edge: made, kept, adopted, taken away, whatever happens in between."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Target
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.names import ADOPTED, DOWNSYNCED, EDGE_REVISION, OVERWRITE, SYNCED_BY, ObjectRef
from atoll.machinery.meta.objects import Object, annotations_of, labels_of
from atoll.machinery.meta.status import NotFound
from atoll.syncer.metrics import SyncerMetrics
from atoll.syncer.syncer import Options, Syncer
from harness.clients.api import configmap, crd
from harness.servers.in_process.mailbox_view import MailboxView
from harness.servers.in_process.syncer import HELD, TIMING, Run, is_idle, syncing
from harness.waits import until

CONFIGMAPS, NAMESPACES = Resource("", "v1", "configmaps"), Resource("", "v1", "namespaces", namespaced=False)
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)


async def at(edge: Client, name: str, namespace: str) -> Object | None:
    """A ConfigMap of the edge, None if there is none."""
    try:
        return await edge.get(CONFIGMAPS, name, namespace)
    except NotFound:
        return None


def has(edge: Client, name: str, namespace: str, data: dict[str, str]) -> Callable[[], Awaitable[Any]]:
    async def look() -> bool:
        found = await at(edge, name, namespace)
        return found is not None and found.get("data") == data

    return look


def lacks(edge: Client, name: str, namespace: str) -> Callable[[], Awaitable[Any]]:
    async def look() -> bool:
        return await at(edge, name, namespace) is None

    return look


async def test_an_object_is_made_in_its_namespace_kept_as_it_is_and_taken_away(
    view: MailboxView, edge: Client, run: Run
) -> None:
    ref = view.place(configmap("c", {"a": "1"}, namespace="made"))[0]
    async with run() as syncer:
        await until(has(edge, "c", "made", {"a": "1"}), "it is made")
        found = await edge.get(CONFIGMAPS, "c", "made")
        assert annotations_of(found)[DOWNSYNCED] == "ConfigMap/made/c"
        assert SYNCED_BY in labels_of(found)
        view.place(configmap("c", {"a": "2"}, namespace="made"))
        await until(has(edge, "c", "made", {"a": "2"}), "the change is there")
        await edge.patch(CONFIGMAPS, "c", {"data": {"a": "9"}}, "made")
        await until(has(edge, "c", "made", {"a": "2"}), "an edit is reverted")
        await edge.delete(CONFIGMAPS, "c", "made")
        await until(has(edge, "c", "made", {"a": "2"}), "it is made again")
        view.withdraw(ref)
        await until(lacks(edge, "c", "made"), "it is gone")
        assert await edge.get(NAMESPACES, "made")
        await until(healthy(syncer), "no error is left")


async def test_what_was_there_before_is_adopted_with_an_event_and_stays(
    view: MailboxView, edge: Client, run: Run
) -> None:
    await edge.create(CONFIGMAPS, configmap("old", {"a": "0", "theirs": "1"}, namespace="default"))
    ref = view.place(configmap("old", {"a": "1"}, namespace="default"))[0]
    async with run():
        await until(has(edge, "old", "default", {"a": "1", "theirs": "1"}), "it is as it should be")
        marks = annotations_of(await edge.get(CONFIGMAPS, "old", "default"))
        assert marks[ADOPTED] == "ConfigMap/default/old"
        assert DOWNSYNCED not in marks
        await until(events(view), "an Event tells so")
        other = view.place(configmap("new", {"a": "1"}, namespace="default"))[0]
        await until(has(edge, "new", "default", {"a": "1"}), "another one is made")
        view.withdraw(ref, other)
        await until(lacks(edge, "new", "default"), "what was made is gone")
        assert await at(edge, "old", "default")


def events(view: MailboxView) -> Callable[[], Awaitable[Any]]:
    async def look() -> bool:
        return any(each.get("reason") == "Adopted" for each in view.others.values())

    return look


async def test_an_object_that_is_not_to_be_overwritten_is_made_once_and_keeps_edits_of_the_edge(
    view: MailboxView, edge: Client, run: Run
) -> None:
    kept = configmap("kept", {"a": "1"}, namespace="default", annotations={OVERWRITE: "false"})
    other = configmap("other", {"a": "1"}, namespace="default")
    view.place(kept, other)
    async with run():
        await until(has(edge, "kept", "default", {"a": "1"}), "it is made")
        await edge.patch(CONFIGMAPS, "kept", {"data": {"a": "edge"}}, "default")
        view.place({**kept, "data": {"a": "2"}}, {**other, "data": {"a": "2"}})
        await until(has(edge, "other", "default", {"a": "2"}), "the other one follows")
        assert (await edge.get(CONFIGMAPS, "kept", "default"))["data"] == {"a": "edge"}


async def test_objects_wait_for_their_definition_and_go_before_it(view: MailboxView, edge: Client, run: Run) -> None:
    definition, group = crd("boats", "downsync.example.com"), "downsync.example.com"
    boats = Resource(group, "v1", "boats")
    boat: Object = {"apiVersion": f"{group}/v1", "kind": "Boat", "metadata": {"name": "b", "namespace": "default"}}
    first = view.place({**boat, "spec": {"replicas": 1}}, resource="boats")[0]
    async with run() as syncer:
        await until(failing(syncer, first), "the kind is reported as missing")
        second = view.place(definition, resource="customresourcedefinitions")[0]

        async def made() -> bool:
            try:
                return bool((await edge.get(boats, "b", "default"))["spec"]["replicas"] == 1)
            except NotFound:
                return False

        await until(made, "the object is there")
        await until(healthy(syncer), "no error is left")
        await edge.patch(boats, "b", {"status": {"replicas": 4}}, "default", "status")
        await until(reports(view, first, {"replicas": 4}), "its status comes back")
        assert "edge.kubestellar.io/edge-revision" in annotations_of(view.objects[first])
        await edge.patch(boats, "b", {"status": {"replicas": None, "selector": "x"}}, "default", "status")
        await until(reports(view, first, {"selector": "x"}), "what left the status is gone")
        removed = (await edge.get(boats, "b", "default"))["metadata"]["uid"]
        await edge.delete(CRDS, definition["metadata"]["name"])

        async def made_again() -> bool:
            try:
                return bool((await edge.get(boats, "b", "default"))["metadata"]["uid"] != removed)
            except NotFound:
                return False

        await until(made_again, "what was removed with its definition is made again")
        await until(healthy(syncer), "no error is left")
        view.withdraw(first, second)

        async def gone() -> bool:
            listed = await edge.list(CRDS)
            return all(each["metadata"]["name"] != definition["metadata"]["name"] for each in listed["items"])

        await until(gone, "the definition is gone")


def failing(syncer: Syncer, ref: ObjectRef) -> Callable[[], Awaitable[Any]]:
    async def look() -> bool:
        return syncer.downsync is not None and ref in syncer.failures

    return look


def healthy(syncer: Syncer) -> Callable[[], Awaitable[Any]]:
    async def look() -> bool:
        return syncer.downsync is not None and not syncer.failures

    return look


def reports(view: MailboxView, ref: ObjectRef, status: Object) -> Callable[[], Awaitable[Any]]:
    async def look() -> bool:
        return view.status(ref) == status

    return look


async def test_an_object_that_the_edge_refuses_is_reported_and_holds_up_no_other(
    view: MailboxView, edge: Client, run: Run
) -> None:
    bad = configmap("bad", {"no key": "1"}, namespace="default")
    view.place(bad, configmap("good", {"a": "1"}, namespace="default"))
    async with run() as syncer:
        await until(has(edge, "good", "default", {"a": "1"}), "the good one is there")

        async def errors() -> Any:
            return view.config_status.get("errors")

        rows = await until(errors, "the bad one is reported")
        assert [(each["name"], each["operation"], each["reason"]) for each in rows] == [("bad", "apply", "Invalid")]
        assert metrics_of(syncer, "failing_objects") == {("Invalid",): 1.0}
        view.place({**bad, "data": {"key": "1"}})
        before = view.revision
        await until(has(edge, "bad", "default", {"key": "1"}), "the corrected one is there at once")

        async def is_reported() -> bool:
            status = view.config_status
            return not status["errors"] and int(status["appliedRevision"]) >= before

        await until(is_reported, "nothing is left to report")
        assert view.config_status["edgeUID"]
        lease = view.others["/apis/coordination.k8s.io/v1/namespaces/default/leases/syncer"]
        assert lease["spec"]["holderIdentity"]
        assert metrics_of(syncer, "failing_objects") == {}
        assert metrics_of(syncer, "applies")[()] >= 2
        for name in ("queue_depth", "lag_seconds"):
            assert metrics_of(syncer, name)[()] >= 0
        assert [metrics_of(syncer, f"{side}_connected")[()] for side in ("center", "edge")] == [1, 1]


def metrics_of(syncer: Syncer, name: str) -> dict[tuple[str, ...], float]:
    """The values of a metric by its labels."""
    (found,) = (each for each in SyncerMetrics(syncer, CollectorRegistry()).collect() if each.name == f"syncer_{name}")
    return {tuple(each.labels.values()): each.value for each in found.samples}


async def test_a_cut_link_leaves_the_edge_as_it_was_and_goes_on_without_a_list(
    view: MailboxView, edge: Client, run: Run
) -> None:
    one, two = configmap("one", {"a": "1"}, namespace="default"), configmap("two", {"a": "1"}, namespace="default")
    view.place(one, two)
    async with run():
        await until(has(edge, "two", "default", {"a": "1"}), "both are there")
        view.cut()
        await edge.patch(CONFIGMAPS, "one", {"data": {"a": "edge"}}, "default")
        await until(has(edge, "one", "default", {"a": "1"}), "an edit is reverted without a center")
        for number in range(5):
            view.place({**two, "data": {"a": str(number)}})
        lists = view.lists
        view.join()
        await until(has(edge, "two", "default", {"a": "4"}), "the last state came")
        assert view.lists == lists
        view.cut()
        view.withdraw(*view.place({**two, "data": {"a": "9"}}))
        view.expire()
        view.join()
        await until(lacks(edge, "two", "default"), "what went meanwhile is gone")
        assert view.lists == lists + 1


async def test_a_restart_writes_nothing_whether_its_state_was_kept_or_lost(
    view: MailboxView, edge: Client, run: Run, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    names = [f"s{number}" for number in range(8)]
    refs = view.place(*(configmap(name, {"a": "1"}, namespace="again") for name in names))
    async with run(state) as first:
        await until(is_idle(first, view), "all is there")
        before = await revisions(edge, "again")
        assert before.keys() >= set(names)
    for _ in range(2):
        async with run(state) as again:
            await until(is_idle(again, view), "it has looked at everything")
            assert again.downsync is not None
            assert (again.downsync.applies, again.downsync.deletions) == (0, 0)
            assert await revisions(edge, "again") == before
        state.unlink()
    # What left the list while no syncer ran goes, even if nothing is remembered.
    view.withdraw(*refs)
    async with run(state):
        await until(lacks(edge, "s7", "again"), "it is gone")


async def revisions(edge: Client, namespace: str) -> dict[str, str]:
    found = (await edge.list(CONFIGMAPS, namespace))["items"]
    return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in found}


async def test_of_two_syncers_one_writes_and_the_other_takes_over(view: MailboxView, edge: Client, run: Run) -> None:
    view.place(configmap("c", {"a": "1"}, namespace="two"))
    async with run(timing=HELD) as second:
        async with run(timing=HELD) as first:
            await until(has(edge, "c", "two", {"a": "1"}), "one of them writes")
            writes = [each.downsync.applies for each in (first, second) if each.downsync is not None]
            assert sum(map(bool, writes)) == 1
        view.place(configmap("c", {"a": "2"}, namespace="two"))
        await until(has(edge, "c", "two", {"a": "2"}), "the other one writes")


async def test_replicas_and_stray_pods_write_nothing_twice_and_one_takes_over(
    view: MailboxView, edge: Client, run: Run
) -> None:
    names = [f"o{number}" for number in range(5)]
    view.place(*(configmap(name, {"a": "1"}, namespace="replicas") for name in names))
    async with AsyncExitStack() as lives:
        running = {}
        for _ in range(3):
            life = await lives.enter_async_context(AsyncExitStack())
            running[await life.enter_async_context(run(timing=HELD))] = life
        for name in names:
            await until(has(edge, name, "replicas", {"a": "1"}), "all are there")

        def are_counted(*wanted: int) -> Callable[[], Awaitable[bool]]:
            async def look() -> bool:
                return sorted(map(writes_of, running)) == [*wanted]

            return look

        await until(are_counted(0, 0, len(names) + 1), "one of them wrote everything, with their Namespace")
        before = await revisions(edge, "replicas")
        holder = max(running, key=writes_of)
        await running.pop(holder).aclose()
        view.place(configmap("later", {"a": "1"}, namespace="replicas"))
        await until(has(edge, "later", "replicas", {"a": "1"}), "another one took over")
        await until(are_counted(0, 1), "its write is counted, which tells who it is")
        await until(is_idle(max(running, key=writes_of), view), "it has looked at everything")
        after = await revisions(edge, "replicas")
        assert {name: after[name] for name in before} == before
        assert sorted(map(writes_of, running)) == [0, 1]


def writes_of(syncer: Syncer) -> int:
    return syncer.downsync.applies if syncer.downsync is not None else 0


async def test_what_the_syncer_of_another_target_keeps_is_left_and_reported_until_that_one_is_gone(
    view: MailboxView, edge: Client, run: Run, cluster: tuple[Target, str]
) -> None:
    async with MailboxView.serving() as older, AsyncExitStack() as life:
        older.place(configmap("c", {"a": "older"}, namespace="again"))
        await life.enter_async_context(
            syncing(cluster, older.target, Options("older", 500.0, 500, None, TIMING, TIMING))
        )
        await until(has(edge, "c", "again", {"a": "older"}), "it is made")
        ref, other = view.place(*(configmap(name, {"a": "newer"}, namespace="again") for name in ("c", "d")))
        async with run() as newer:
            await until(has(edge, "d", "again", {"a": "newer"}), "what nobody keeps is made")
            await until(failing(newer, ref), "what the other keeps is reported")
            failure = newer.failures[ref]
            assert failure.reason == "KeptByOther"
            assert "the syncer of SyncTarget older runs at this cluster too" in failure.message
            assert (await edge.get(CONFIGMAPS, "c", "again"))["data"] == {"a": "older"}
            await life.aclose()
            await until(has(edge, "c", "again", {"a": "newer"}), "it changes hands")
            await until(healthy(newer), "no error is left")
            view.withdraw(ref, other)
            await until(lacks(edge, "d", "again"), "what it made goes")
            assert ADOPTED in annotations_of(await edge.get(CONFIGMAPS, "c", "again"))


async def test_a_namespace_with_objects_of_others_stays_and_one_without_goes(
    view: MailboxView, edge: Client, run: Run
) -> None:
    refs = []
    for name in ("shared", "ours"):
        body: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        refs += view.place(body, resource="namespaces") + view.place(configmap("c", namespace=name))
    async with run():
        await until(lambda: at(edge, "c", "shared"), "the first is there")
        await until(lambda: at(edge, "c", "ours"), "the second is there")
        await edge.create(CONFIGMAPS, configmap("theirs", namespace="shared"))
        view.withdraw(*refs)

        async def gone() -> bool:
            try:
                return "deletionTimestamp" in (await edge.get(NAMESPACES, "ours"))["metadata"]
            except NotFound:
                return True

        await until(gone, "the one without others goes")
        await until(lacks(edge, "c", "shared"), "what was ours goes")
        assert "deletionTimestamp" not in (await edge.get(NAMESPACES, "shared"))["metadata"]
        assert await at(edge, "theirs", "shared")


async def test_where_a_status_is_from_stays_in_the_mailbox(view: MailboxView, edge: Client, run: Run) -> None:
    noted = configmap("noted", {"a": "1"}, namespace="default", annotations={EDGE_REVISION: "uid/5", "other": "1"})
    view.place(noted)
    async with run():
        await until(has(edge, "noted", "default", {"a": "1"}), "it is there")
        marks = annotations_of(await edge.get(CONFIGMAPS, "noted", "default"))
        assert (EDGE_REVISION in marks, marks["other"]) == (False, "1")


async def test_an_edge_sync_config_carries_objects_under_other_names(view: MailboxView, edge: Client, run: Run) -> None:
    up: Object = {"kind": "ConfigMap", "group": "", "version": "v1", "name": "upper", "namespace": "default"}
    rule = {"upstream": up, "downstream": {**up, "name": "lower"}}
    spec = {"downSyncedResources": [up], "conversions": [rule]}
    head = {"apiVersion": "edge.kubestellar.io/v2alpha1", "kind": "EdgeSyncConfig", "metadata": {"name": "esc"}}
    config = ObjectRef("edge.kubestellar.io", "edgesyncconfigs", "", "esc")
    view.put(config, {**head, "spec": spec})
    view.put(ObjectRef("", "configmaps", "default", "upper"), configmap("upper", {"a": "1"}, namespace="default"))
    async with run():
        await until(has(edge, "lower", "default", {"a": "1"}), "it has the other name")
        assert await at(edge, "upper", "default") is None
        view.put(ObjectRef("", "configmaps", "default", "upper"), configmap("upper", {"a": "2"}, namespace="default"))
        await until(has(edge, "lower", "default", {"a": "2"}), "changes follow")
        view.delete(config)
        await until(lacks(edge, "lower", "default"), "it goes with the wish")


@pytest.mark.long
async def test_a_controller_that_changes_an_object_back_is_reported_and_holds_up_no_other(
    view: MailboxView, edge: Client, run: Run
) -> None:
    name = f"c{uuid.uuid4().hex[:8]}"
    (ref,) = view.place(configmap(name, {"a": "mailbox"}, namespace="default"))
    other = configmap(f"{name}-other", {"a": "1"}, namespace="default")

    async def fight() -> None:
        """Change it back whenever it is applied."""
        while True:
            await until(has(edge, name, "default", {"a": "mailbox"}), "it was applied")
            await edge.patch(CONFIGMAPS, name, {"data": {"a": "controller"}}, "default")

    async with run() as syncer:
        await until(has(edge, name, "default", {"a": "mailbox"}), "it is made")
        assert syncer.downsync is not None
        opponent = asyncio.create_task(fight())

        async def is_reported() -> bool:
            rows = view.config_status.get("errors") or ()
            return [(each["name"], each["reason"]) for each in rows] == [(name, "Contested")]

        await until(is_reported, "it is reported")
        assert "field manager kubectl" in syncer.failures[ref].message
        assert syncer.downsync.applies == 6, "it was made, and then five times put back"
        view.place(other)
        await until(has(edge, f"{name}-other", "default", {"a": "1"}), "another one follows")
        view.place(configmap(name, {"a": "anew"}, namespace="default"))
        await until(has(edge, name, "default", {"a": "anew"}), "what is wanted anew comes at once")
        opponent.cancel()

        async def is_over() -> bool:
            return not view.config_status.get("errors")

        await until(is_over, "nobody changes that back")
