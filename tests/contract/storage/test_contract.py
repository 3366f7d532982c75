"""The contract of every store, wherever its writer runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.types import LOGICAL_CLUSTERS, NAMESPACES, SERVICE_ACCOUNTS
from atoll.machinery.storage.contract import (
    Change,
    Check,
    ClusterEmpty,
    Cursor,
    Delete,
    DeletePrefix,
    Flag,
    GateState,
    GateUnchanged,
    GuardFailed,
    Mutation,
    NamespaceActive,
    ObjectExists,
    ObjectMissing,
    Operation,
    Position,
    RevisionConflict,
    RevisionUnchanged,
    Scope,
    Store,
)
from harness.data.stores import CONFIGMAPS, create, delete, key, listed, pages, put

SECRETS = ResourceType("", "secrets")
HERE = Scope(CONFIGMAPS, "root")


async def read_until(cursor: Cursor, revision: int) -> list[Change]:
    """The entries of a cursor until it has passed a revision."""
    found = [*cursor.read()]
    while cursor.position < revision:
        await cursor.wait()
        found += cursor.read()
    return found


# --- writes


async def test_an_object_is_served_with_the_revision_that_wrote_it(store: Store) -> None:
    [revision] = await store.submit([put(key("a"), data="x")])
    with store.snapshot() as snapshot:
        record = snapshot.get(key("a"))
        assert record is not None
        assert record.revision == revision == snapshot.revision
        assert decode(record.value)["metadata"]["resourceVersion"] == str(revision)
        assert len(str(revision)) == 16


async def test_creating_twice_says_where_the_first_stands(store: Store) -> None:
    [revision] = await create(store, "a")
    with pytest.raises(ObjectExists) as raised:
        await store.submit([put(key("a"))])
    assert (raised.value.key, raised.value.revision) == (key("a"), revision)


async def test_an_update_of_another_version_says_which_one_stands(store: Store) -> None:
    [first] = await create(store, "a")
    [second] = await store.submit([put(key("a"), expected=first)])
    with pytest.raises(RevisionConflict) as raised:
        await store.submit([put(key("a"), expected=first)])
    assert (raised.value.expected, raised.value.actual) == (first, second)


async def test_an_update_and_a_delete_of_nothing_are_missing(store: Store) -> None:
    for mutation in (put(key("a"), expected=5), delete(key("a"), 5), Check(key("a"), 5)):
        with pytest.raises(ObjectMissing):
            await store.submit([mutation])


async def test_a_deleted_object_is_gone_and_may_come_again(store: Store) -> None:
    [first] = await create(store, "a")
    [second] = await store.submit([delete(key("a"), first)])
    with store.snapshot() as snapshot:
        assert snapshot.get(key("a")) is None
        assert snapshot.revision_of(key("a")) == 0
    [third] = await create(store, "a")
    assert first < second < third


async def test_a_deletion_may_change_the_object_first_which_watches_see(store: Store) -> None:
    [first] = await store.submit([put(key("a"), data="x")])
    cursor = store.cursor(HERE, first)
    last = put(key("a"), expected=first, data="last")
    with pytest.raises(RevisionConflict):
        await store.submit([Delete(key("a"), first + 1, last.value, last.hole)])
    [gone] = await store.submit([Delete(key("a"), first, last.value, last.hole)])
    changed, deleted = await read_until(cursor, gone)
    assert [changed.operation, deleted.operation] == [Operation.MODIFIED, Operation.DELETED]
    assert first < changed.revision < deleted.revision == gone
    cursor.close()
    for change in (changed, deleted):
        assert decode(change.after)["data"] == "last"
        assert decode(change.after)["metadata"]["resourceVersion"] == str(change.revision)
    with store.snapshot() as snapshot:
        assert snapshot.get(key("a")) is None


async def test_a_submit_is_all_or_nothing(store: Store) -> None:
    await create(store, "b")
    with pytest.raises(ObjectExists):
        await store.submit([put(key("a")), put(key("b"))])
    assert len(listed(store, HERE)) == 1
    with store.snapshot() as snapshot:
        assert [usage.count for usage in snapshot.usage("root")] == [1]


async def test_a_check_writes_nothing(store: Store) -> None:
    [revision] = await create(store, "a")
    assert await store.submit([Check(key("a"), revision), Check(key("z"), 0)]) == [0, 0]
    with store.snapshot() as snapshot:
        assert snapshot.revision == revision


async def test_one_failing_submit_among_many_stops_no_other(store: Store) -> None:
    await create(store, "n7")
    done = await asyncio.gather(
        *(store.submit([put(key(f"n{index}"))]) for index in range(200)), return_exceptions=True
    )
    failed = [result for result in done if isinstance(result, BaseException)]
    assert [type(error) for error in failed] == [ObjectExists]
    assert len(listed(store, HERE)) == 200
    revisions = [result[0] for result in done if isinstance(result, list)]
    assert len(set(revisions)) == 199


async def test_a_submit_whose_caller_went_away_is_done_all_the_same(store: Store) -> None:
    caller = asyncio.create_task(store.submit([put(key("a"))]))
    await asyncio.sleep(0)
    caller.cancel()
    await create(store, "b")
    assert len(listed(store, HERE)) == 2


async def test_a_queued_submit_is_answered_as_any_other_and_done_even_if_it_is_cancelled(store: Store) -> None:
    first, second = store.queue([put(key("a"))]), store.queue([put(key("b"))])
    second.cancel()
    assert len(await first) == 1
    with pytest.raises(ObjectExists):
        await store.queue([put(key("a"))])
    await create(store, "c")
    assert len(listed(store, HERE)) == 3


async def test_naming_a_key_twice_is_refused(store: Store) -> None:
    with pytest.raises(Exception, match="at most once"):
        await store.submit([put(key("a")), Check(key("a"), 0)])


async def test_a_prefix_delete_leaves_finalizers_and_other_namespaces(store: Store) -> None:
    await create(store, "a", "b", "c")
    await create(store, "a", namespace="default-2")
    await store.submit([put(key("held"), metadata={"finalizers": ["x/y"]})])
    scope = Scope(CONFIGMAPS, "root", "default")
    assert await store.submit([DeletePrefix(scope, 2)]) == [2]
    assert await store.submit([DeletePrefix(scope)]) == [1]
    assert await store.submit([DeletePrefix(scope)]) == [0]
    with store.snapshot() as snapshot:
        names = [(record.key.namespace, record.key.name) for record in snapshot.scan(HERE)]
    assert names == [("default", "held"), ("default-2", "a")]


# --- guards


async def test_nothing_enters_a_namespace_that_is_absent_or_terminating(store: Store) -> None:
    namespace = ObjectKey(NAMESPACES, "root", "", "default")
    guard = NamespaceActive("root", "default")
    with pytest.raises(GuardFailed) as raised:
        await store.submit([put(key("a"))], [guard])
    assert raised.value.guard == guard
    # A namespace and what lies in it may be created by one submit.
    first, _ = await store.submit([put(namespace), put(key("a"))], [guard])
    await store.submit([put(key("b"))], [guard])
    terminating = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    await store.submit([put(namespace, expected=first, metadata=terminating)])
    with pytest.raises(GuardFailed):
        await store.submit([put(key("c"))], [guard])


async def test_the_gate_follows_the_logical_cluster(store: Store) -> None:
    cluster = ObjectKey(LOGICAL_CLUSTERS, "c", "", "cluster")

    def phase(name: str, expected: int, **metadata: Any) -> list[Mutation]:
        return [put(cluster, expected=expected, metadata=metadata, status={"phase": name})]

    def gate() -> tuple[GateState, int]:
        with store.snapshot() as snapshot:
            found = snapshot.gate("c")
            return found.state, found.generation

    deleting, off = {"deletionTimestamp": "t"}, {"annotations": {"core.kcp.io/inactive": "true"}}
    moving = {"annotations": {"internal.kcp.io/migrating": "x"}}
    steps: list[tuple[str, Object, GateState]] = [
        ("Scheduling", {}, GateState.CLOSED),
        ("Initializing", {}, GateState.INITIALIZING),
        ("Ready", {}, GateState.OPEN),
        ("Ready", off, GateState.INACTIVE),
        ("Ready", moving, GateState.MOVING),
        ("Terminating", deleting, GateState.OPEN),
        ("Deleting", {**deleting, **off}, GateState.DELETING),
    ]
    assert gate() == (GateState.CLOSED, 0)
    revision = 0
    for name, metadata, state in steps:
        [revision] = await store.submit(phase(name, revision, **metadata))
        assert gate() == (state, revision)
    generation = revision
    [revision] = await store.submit(phase("Deleting", revision, deletionTimestamp="t"))
    assert gate() == (GateState.DELETING, generation)
    await store.submit([put(key("a", cluster="c"))], [GateUnchanged("c", generation)])
    with pytest.raises(GuardFailed):
        await store.submit([put(key("b", cluster="c"))], [GateUnchanged("c", generation - 1)])
    await store.submit([delete(cluster, revision)])
    assert gate() == (GateState.CLOSED, 0)


async def test_a_guard_on_another_object_is_judged_before_the_submit(store: Store) -> None:
    [lock] = await create(store, "lock")
    with pytest.raises(GuardFailed):
        await store.submit([put(key("a"))], [RevisionUnchanged(key("lock"), 0)])
    await store.submit([put(key("a")), delete(key("lock"), lock)], [RevisionUnchanged(key("lock"), lock)])
    await store.submit([put(key("b"))], [RevisionUnchanged(key("lock"), 0)])


async def test_a_cluster_is_taken_for_emptied_only_if_nothing_is_left_in_it(store: Store) -> None:
    first, second = await create(store, "a", "b", cluster="c")
    with pytest.raises(GuardFailed):
        await store.submit([delete(key("a", cluster="c"), first)], [ClusterEmpty("c")])
    with pytest.raises(GuardFailed):
        await store.submit([put(key("new", cluster="other"))], [ClusterEmpty("other")])
    await store.submit(
        [delete(key("a", cluster="c"), first), delete(key("b", cluster="c"), second)], [ClusterEmpty("c")]
    )
    # The result of another submit in the same commit counts as well.
    [third] = await create(store, "a", cluster="c")
    brings, takes = (
        store.submit([put(ObjectKey(SERVICE_ACCOUNTS, "c", "", "late"))]),
        store.submit([delete(key("a", cluster="c"), third)], [ClusterEmpty("c")]),
    )
    _, refused = await asyncio.gather(brings, takes, return_exceptions=True)
    assert isinstance(refused, GuardFailed)


# --- reads


async def test_counters_say_what_a_cluster_holds(store: Store) -> None:
    first, second = await create(store, "a", "b", cluster="c1")
    [third] = await create(store, "a", cluster="c2")
    await store.submit([delete(key("a", cluster="c1"), first)])
    with store.snapshot() as snapshot:
        [usage] = snapshot.usage("c1")
        record = snapshot.get(key("b", cluster="c1"))
        assert record is not None
        assert (usage.type, usage.count, usage.size_bytes) == (CONFIGMAPS, 1, len(record.value))
        assert usage.last == snapshot.last(CONFIGMAPS, "c1") == snapshot.last(CONFIGMAPS, "") > third > second
        assert snapshot.last(CONFIGMAPS, "c2") == third
        assert snapshot.last(CONFIGMAPS, "c3") == snapshot.last(SECRETS, "c1") == 0


async def test_the_last_revisions_of_types_are_those_of_each_of_them(store: Store) -> None:
    never = ResourceType("a.io", "never")
    [gate] = await store.submit([put(ObjectKey(LOGICAL_CLUSTERS, "c1", "", "cluster"), status={"phase": "Ready"})])
    types = (never, CONFIGMAPS, LOGICAL_CLUSTERS)
    with store.snapshot() as snapshot:
        assert snapshot.lasts(types, "c1") == (0, 0, gate)
    [own] = await create(store, "a", cluster="c1")
    [other] = await create(store, "a", cluster="c2")
    [new] = await store.submit([put(ObjectKey(never, "c2", "", "first"))])
    with store.snapshot() as snapshot:
        assert snapshot.lasts(types, "c1") == (0, own, gate)
        assert snapshot.lasts(types, "c2") == (new, other, 0)
        assert snapshot.lasts(types, "") == tuple(snapshot.last(each, "") for each in types) == (new, other, gate)


async def test_lists_are_in_the_order_of_cluster_namespace_and_name(store: Store) -> None:
    places = [("a", "n", "x"), ("a", "n", "x-1"), ("a", "n-1", "w"), ("a-b", "n", "v"), ("ab", "", "u")]
    for cluster, namespace, name in reversed(places):
        await create(store, name, cluster=cluster, namespace=namespace)
    found: list[tuple[str, str, str]] = []
    with store.snapshot() as snapshot:
        for record in snapshot.scan(Scope(CONFIGMAPS)):
            found.append((record.key.cluster, record.key.namespace, record.key.name))
        assert found == places
        after = Position("a", "n", "x-1")
        assert len(snapshot.scan(Scope(CONFIGMAPS), after, 2)) == 2
        assert snapshot.scan(Scope(CONFIGMAPS), after, 1)[0].key.name == "w"
        for scope in (Scope(CONFIGMAPS), Scope(CONFIGMAPS, "a"), Scope(CONFIGMAPS, "a", "n"), Scope(SECRETS)):
            for bounds in ((None, 500), (after, 2), (after, 1)):
                scanned = [(record.key, record.revision) for record in snapshot.scan(scope, *bounds)]
                assert snapshot.revisions(scope, *bounds) == scanned
    named = [decode(value)["metadata"]["name"] for value in listed(store, Scope(CONFIGMAPS))]
    assert named == ["x", "x-1", "w", "v", "u"]
    # A cluster's prefix never reaches into one whose name it begins, nor a namespace's.
    assert len(listed(store, Scope(CONFIGMAPS, "a"))) == 3
    assert len(listed(store, Scope(CONFIGMAPS, "a", "n"))) == 2
    assert len(listed(store, Scope(CONFIGMAPS, "", "n"))) == 3


async def test_slices_are_of_one_revision_whatever_is_written_between_them(store: Store) -> None:
    revisions = await create(store, *(f"n{index:02}" for index in range(30)))
    found: list[bytes] = []
    for index, page in enumerate(pages(store, HERE, limit=7)):
        assert page.revision == revisions[-1]
        found += page.values
        if index == 0:
            assert page.remaining == 23
            assert page.after == Position("root", "default", "n06")
            await store.submit([delete(key("n10"), revisions[10])])
            await store.submit([put(key("n20"), expected=revisions[20], data="new")])
            await create(store, "n10-b", "zz")
    assert [decode(value)["metadata"]["name"] for value in found] == [f"n{index:02}" for index in range(30)]
    assert decode(found[20])["data"] == "n20"
    assert len(listed(store, HERE)) == 31


async def test_a_slice_is_bounded_in_bytes_but_never_empty(store: Store) -> None:
    for name in "abcdef":
        await store.submit([put(key(name), data="x" * 1000)])
    slices = [len(page.values) for page in pages(store, HERE, size_bytes=1)]
    assert slices == [1] * 6
    assert max(len(page.values) for page in pages(store, HERE, size_bytes=2500)) == 3


async def test_names_too_long_for_a_key_are_kept_in_full(store: Store) -> None:
    names = ["r" * 300 + str(index) for index in range(3)]
    await create(store, *names)
    cursor = store.cursor(HERE, 0)
    with store.snapshot() as snapshot:
        assert {record.key.name for record in snapshot.scan(HERE)} == set(names)
        assert all(snapshot.revision_of(key(name)) for name in names)
    assert {change.key.name for change in await read_until(cursor, cursor.position)} == set(names)
    assert {entry.key.name for entry in store.tail(0)} == set(names)
    assert len(listed(store, HERE, limit=1)) == 3
    cursor.close()


async def test_owners_and_system_labels_are_found_without_a_scan(store: Store) -> None:
    owned = {"ownerReferences": [{"uid": "u1"}, {"uid": "u2"}]}
    claimed = {"labels": {"claimed.internal.apis.kcp.io/x": "y", "app": "z"}}
    replicated = {"annotations": {"internal.kcp.io/replicate": "core.kcp.io"}}
    [first] = await store.submit([put(key("owned"), metadata=owned)])
    [second] = await store.submit([put(key("claimed"), metadata=claimed)])
    await store.submit([put(key("replicated"), metadata=replicated)])
    typed = {"annotations": {"internal.tenancy.kcp.io/type": "root:lab"}}
    await store.submit([put(key("typed"), metadata=typed)])
    with store.snapshot() as snapshot:
        assert snapshot.owned("root", "u1") == snapshot.owned("root", "u2") == [key("owned")]
        assert snapshot.owned("other", "u1") == []
        assert snapshot.labelled("claimed.internal.apis.kcp.io/x", "y") == [key("claimed")]
        assert snapshot.labelled("app", "z") == []
        assert snapshot.labelled("internal.kcp.io/replicate", "") == [key("replicated")]
        assert snapshot.labelled("internal.tenancy.kcp.io/type", "root:lab") == [key("typed")]
        record = snapshot.get(key("owned"))
        assert record is not None
        assert record.flags & Flag.OWNED
    await store.submit([put(key("owned"), expected=first, metadata={"ownerReferences": [{"uid": "u2"}]})])
    await store.submit([delete(key("claimed"), second)])
    with store.snapshot() as snapshot:
        assert snapshot.owned("root", "u1") == []
        assert snapshot.owned("root", "u2") == [key("owned")]
        assert snapshot.labelled("claimed.internal.apis.kcp.io/x", "y") == []


async def test_a_list_by_an_indexed_label_reads_what_carries_it_alone(store: Store) -> None:
    mine, other = {"labels": {"claimed.internal.apis.kcp.io/x": "y"}}, {"labels": {"app": "y"}}
    for index in range(30):
        carries = mine if index % 10 == 0 else other
        await store.submit([put(key(f"m-{index:02}"), data="x" * 100, metadata=carries)])
        await store.submit([put(key(f"m-{index:02}", cluster="other"), data="x" * 100, metadata=carries)])
    label = ("claimed.internal.apis.kcp.io/x", "y")

    def names(scope: Scope, **how: int) -> list[list[str]]:
        read = pages(store, scope, label=label, **how)
        return [[decode(value)["metadata"]["name"] for value in page.values] for page in read]

    wanted = ["m-00", "m-10", "m-20"]
    assert names(Scope(CONFIGMAPS), size_bytes=10_000) == [[*wanted, *wanted]]
    assert names(HERE, size_bytes=10_000) == [wanted]
    assert names(HERE, limit=2) == [["m-00", "m-10"], ["m-20"]]
    assert [page.remaining for page in pages(store, HERE, label=label, limit=2)] == [-1, 0]
    assert [len(page.values) for page in pages(store, HERE, label=("app", "y"))] == [30], "not indexed: all are read"
    with store.snapshot() as snapshot:
        before = snapshot.revision
    await store.submit([put(key("m-05a"), metadata=mine)])
    at = pages(store, HERE, at=before, label=label)
    assert (
        set(wanted)
        <= {decode(value)["metadata"]["name"] for page in at for value in page.values}
        < {"m-05a", *(f"m-{index:02}" for index in range(30))}
    )
    assert names(HERE) == [["m-00", "m-05a", "m-10", "m-20"]]


async def test_of_what_is_labelled_one_type_and_so_many_can_be_asked_for(store: Store) -> None:
    label, secret = ("claimed.internal.apis.kcp.io/x", "y"), ObjectKey(SECRETS, "root", "default", "s")
    for each in (key("b"), key("a"), secret):
        await store.submit([put(each, metadata={"labels": dict([label])})])
    with store.snapshot() as snapshot:
        assert set(snapshot.labelled(*label)) == {key("a"), key("b"), secret}
        assert snapshot.labelled(*label, key("a").type) == [key("a"), key("b")]
        assert snapshot.labelled(*label, key("a").type, 1) == [key("a")]
        assert snapshot.labelled(*label, SECRETS) == [secret]
        assert snapshot.labelled(*label, ResourceType("", "nothing")) == []
        assert len(snapshot.labelled(*label, limit=2)) == 2
        assert snapshot.labelled(*label, key("a").type, 5, key("a")) == [key("b")]
        everything = snapshot.labelled(*label)
        assert snapshot.labelled(*label, after=everything[0]) == everything[1:]
        assert snapshot.labelled(*label, after=everything[-1]) == []


async def test_sealed_objects_read_like_any_other(store: Store) -> None:
    secret = ObjectKey(SECRETS, "root", "default", "s")
    cursor = store.cursor(Scope(SECRETS, "root"), 0)
    [first] = await store.submit([put(secret, data="hush")])
    [second] = await store.submit([put(secret, expected=first, data="hush hush")])
    with store.snapshot() as snapshot:
        record = snapshot.get(secret)
        assert record is not None
        assert decode(record.value)["data"] == "hush hush"
        assert record.flags & Flag.SEALED
    assert listed(store, Scope(SECRETS, "root")) == [record.value]
    [past] = listed(store, Scope(SECRETS, "root"), at=first)
    assert (decode(past)["data"], decode(past)["metadata"]["resourceVersion"]) == ("hush", str(first))
    added, modified = await read_until(cursor, second)
    assert decode(added.after)["data"] == "hush"
    assert modified.before == added.after
    assert modified.after == record.value
    entries = store.tail(0)
    assert all(entry.sealed and b"hush" not in entry.value + entry.before for entry in entries)
    assert [store.change(entry.revision) for entry in entries] == [added, modified]
    cursor.close()


async def test_objects_under_deletion_are_found_in_all_clusters(store: Store) -> None:
    going = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/hold"]}
    [first, *_] = await create(store, "a", "b")
    await store.submit([put(key("a"), expected=first, metadata=going), put(key("gone"), metadata=going)])
    with store.snapshot() as snapshot:
        revision = snapshot.revision_of(key("gone"))
    await store.submit([delete(key("gone"), revision), put(key("c", cluster="other"), metadata=going)])
    with store.snapshot() as snapshot:
        assert {each for each in snapshot.under_deletion() if each} == {key("a"), key("c", cluster="other")}


# --- watches and the log


async def test_a_watch_gives_each_change_once_with_both_images(store: Store) -> None:
    cursor = store.cursor(HERE, 0)
    [first] = await create(store, "a")
    [second] = await store.submit([put(key("a"), expected=first, data="2")])
    [third] = await store.submit([delete(key("a"), second)])
    added, modified, deleted = await read_until(cursor, third)
    operations = [change.operation for change in (added, modified, deleted)]
    assert operations == [Operation.ADDED, Operation.MODIFIED, Operation.DELETED]
    assert added.before is None
    assert modified.before == added.after
    assert deleted.before == modified.after
    # A DELETED shows the object as it was, with the revision of the deletion.
    assert decode(deleted.after)["data"] == "2"
    assert decode(deleted.after)["metadata"]["resourceVersion"] == str(third)
    assert (modified.previous, modified.previous_of_type) == (first, first)
    cursor.close()


async def test_a_watch_sees_its_own_scope_and_its_position_passes_the_rest(store: Store) -> None:
    narrow = store.cursor(Scope(CONFIGMAPS, "root", "ns"), 0)
    wide = store.cursor(Scope(CONFIGMAPS), 0)
    await create(store, "a", cluster="other", namespace="ns")
    await create(store, "b", namespace="ns")
    [last] = await create(store, "c", namespace="ns-2")
    assert [change.key.name for change in await read_until(narrow, last)] == ["b"]
    assert [change.key.name for change in await read_until(wide, last)] == ["a", "b", "c"]
    assert not narrow.read()
    assert narrow.position >= last
    narrow.close()
    wide.close()


async def test_a_watch_resumes_behind_any_revision(store: Store) -> None:
    revisions = await create(store, *"abcdef")
    for index, revision in enumerate(revisions):
        cursor = store.cursor(HERE, revision)
        found = await read_until(cursor, revisions[-1])
        assert [change.revision for change in found] == revisions[index + 1 :]
        cursor.close()


async def test_a_waiting_watch_is_woken_by_a_commit_in_its_scope_only(store: Store) -> None:
    cursor = store.cursor(HERE, 0)
    [last] = await create(store, "a")
    await read_until(cursor, last)
    waiting = asyncio.create_task(cursor.wait())
    await create(store, "b", cluster="elsewhere")
    assert not waiting.done()
    [last] = await create(store, "c")
    await waiting
    assert [change.key.name for change in await read_until(cursor, last)] == ["c"]
    cursor.close()


async def test_the_tail_holds_every_change_as_stored_and_chained(store: Store) -> None:
    first, second = await create(store, "a", "b")
    [third] = await store.submit([put(key("a"), expected=first)])
    [fourth] = await store.submit([delete(key("b"), second)])
    entries = store.tail(0)
    assert [entry.revision for entry in entries] == [first, second, third, fourth]
    assert [entry.previous for entry in entries] == [0, 0, first, second]
    assert [entry.previous_of_type for entry in entries] == [0, first, second, third]
    assert decode(entries[0].value)["metadata"]["resourceVersion"] == str(first)
    assert entries[3].value == entries[1].value
    assert entries[3].crc == entries[1].crc
    assert [entry.before for entry in entries] == [b"", b"", entries[0].value, entries[1].value]
    assert store.change(fourth + 1) is None
    assert [entry.revision for entry in store.tail(second, 1)] == [third]
    assert store.tail(fourth) == []


async def test_waiting_for_a_commit_gives_the_last_revision(store: Store) -> None:
    waiting = asyncio.create_task(store.committed(0))
    [revision] = await create(store, "a")
    assert await waiting >= revision
    assert await store.committed(revision - 1) >= revision


async def test_a_store_has_an_identity(store: Store) -> None:
    assert store.identity.shard == "root"
    assert store.identity.shard_uid
    assert store.identity.lineage
    assert store.identity.epoch > 0


async def test_the_identities_of_a_resource_are_those_ever_stored_of_it_alone(store: Store) -> None:
    with store.snapshot() as snapshot:
        assert snapshot.identities("example.com", "widgets") == []
    for resource, identity in (("widgets", "b"), ("widgets", "a"), ("widgets", ""), ("widget", "c"), ("widgetss", "d")):
        one = key("one", type=ResourceType("example.com", resource, identity))
        [revision] = await store.submit([put(one)])
        await store.submit([delete(one, revision)])
    with store.snapshot() as snapshot:
        assert snapshot.identities("example.com", "widgets") == ["", "a", "b"]


async def test_a_watch_may_begin_before_anything_of_its_type_was_stored(store: Store) -> None:
    """A type that has no number yet must not be mistaken for the gate row of the cluster."""
    logical = ObjectKey(LOGICAL_CLUSTERS, "c1", "", "cluster")
    await store.submit([put(logical, status={"phase": "Ready"})])
    with store.snapshot() as snapshot:
        revision = snapshot.revision
    cursor = store.cursor(Scope(ResourceType("new.example", "things"), "c1"), revision)
    assert not cursor.read()
    cursor.close()
