"""What is kept of what mailboxes carry: their last value and the one before."""

from __future__ import annotations

import operator

import msgspec

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
