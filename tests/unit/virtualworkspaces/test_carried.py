"""What is kept of what mailboxes carry: their last value and the one before."""

from __future__ import annotations

import operator

import msgspec
import pytest

from atoll.machinery.edge import syncset
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.meta.objects import Object
from atoll.virtualworkspaces.edge.carried import MAX_BYTES, Carried, CarriedReader, Mailbox
from unit.virtualworkspaces.test_downsync_rows import BOX, CATALOG, CONFIGS

MAILBOX = Mailbox(BOX, CATALOG)


def config(revision: int, *names: str, **content: object) -> bytes:
    """A SyncerConfig at a revision, which lists ConfigMaps of these names."""
    places = [{"namespace": "default", "names": list(names)}]
    entry = {"group": "", "resource": "configmaps", "apiVersion": "v1", "objectsByNamespace": places}
    obj: Object = {
        "apiVersion": CONFIGS[0].api_version,
        "kind": "SyncerConfig",
        "metadata": {"name": "the-one", "resourceVersion": str(revision)},
        "spec": {"namespacedObjects": [entry]},
        **content,
    }
    return msgspec.json.encode(obj)


def test_of_a_mailbox_two_revisions_are_kept() -> None:
    reader, configs = CarriedReader(), [config(number, f"n{number}") for number in range(1, 5)]
    neighbour = reader.of(Mailbox("neighbour", CATALOG), configs[:1])
    made = [reader.of(MAILBOX, [each]) for each in configs]
    found = [reader.of(MAILBOX, [each]) for each in reversed(configs)]
    assert found[0] is made[3]
    assert found[1] is made[2], "a watch compares with the one before"
    assert found[2] is not made[1], "two newer ones have replaced it"
    assert found[2].set == made[1].set
    assert reader.of(Mailbox("neighbour", CATALOG), configs[:1]) is neighbour


def test_a_report_of_the_syncer_takes_no_memory_of_another_list() -> None:
    reader = CarriedReader()
    made = [reader.of(MAILBOX, [config(number, "a", status={"applied": number})]) for number in range(1, 4)]
    assert made[0].set is made[1].set is made[2].set
    assert reader.of(MAILBOX, [config(4, "a", "b")]).set is not made[0].set


def test_a_set_that_two_values_share_counts_once() -> None:
    reader, text = CarriedReader(), "x" * (MAX_BYTES // 8 // 4)
    neighbours = [Mailbox(f"n{number}", CATALOG) for number in range(2)]

    def read(revision: int, *names: str) -> list[Carried]:
        return [reader.of(each, [config(revision, *names, status={"text": text})]) for each in neighbours]

    read(1, "a")
    same = read(2, "a")
    assert all(map(operator.is_, read(2, "a"), same))
    other = read(3, "a", "b")
    assert not all(map(operator.is_, read(3, "a", "b"), other)), "with four sets the cache is beyond its bound"


def test_mailboxes_that_carry_the_same_objects_share_their_set() -> None:
    reader, names = CarriedReader(), [f"n{number}" for number in range(100)]
    first, second = (reader.of(Mailbox(f"m{number}", CATALOG), [config(number, *names)]).set for number in (1, 2))
    assert len(first.objects) == 100
    assert first.objects is second.objects
    assert reader.of(Mailbox("m3", CATALOG), [config(3, *names[1:])]).set.objects == first.objects - {
        ObjectRef("", "configmaps", "default", "n0")
    }


def test_a_set_of_objects_is_kept_as_long_as_a_mailbox_carries_it() -> None:
    reader = CarriedReader()
    for revision in range(1, 10):
        reader.of(MAILBOX, [config(revision, f"only-here-{revision}")])
    kept = [ref.name for refs in syncset._in_use.values() for ref in refs if ref.name.startswith("only-here")]
    assert sorted(kept) == ["only-here-8", "only-here-9"]


def test_sets_with_one_hash_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syncset, "hash", lambda _: 1, raising=False)
    first, second = (syncset._shared([ObjectRef("", "configmaps", "default", name)]) for name in ("a", "b"))
    assert first != second
