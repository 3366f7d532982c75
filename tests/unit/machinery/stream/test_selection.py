"""What is read for a selection: the objects of the state that is followed, and filters for what is selected."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from atoll.machinery.kcp.sharding.stream_policy import INTERNAL, REPLICATED, REPLICATED_IF_ANNOTATED
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.types import API_EXPORTS, LOGICAL_CLUSTERS
from atoll.machinery.stream.consumer.selection import MAX_SELECTED, SelectedSubjects, is_of_state
from atoll.machinery.stream.publisher.log_events import from_entry
from atoll.machinery.stream.subjects import state_subject
from atoll.replication.needed_rows import SELECTED, whole_filters
from harness.models.shard_log import ShardLog, Source

EVENT = from_entry("state", Source("east"), ShardLog().put(ObjectKey(API_EXPORTS, "abcdefgh", "", "e")))


@pytest.mark.parametrize(
    ("lineage", "filling", "expected"),
    [
        ("", 9, True),
        (EVENT.lineage, 0, True),
        (EVENT.lineage, 3, True),
        (EVENT.lineage, 4, False),
        ("another", 3, False),
    ],
    ids=["nothing read", "earlier state", "same", "left over", "other history"],
)
def test_only_events_of_the_state_that_is_followed_are_taken(lineage: str, filling: int, expected: bool) -> None:
    assert is_of_state(msgspec.structs.replace(EVENT, filling=3), lineage, filling) is expected


class Chosen:
    """A selection of some clusters."""

    broad, version, covered = ("atoll.state.east.whole",), 1, False

    def __init__(self, count: int) -> None:
        self.reads = 0
        self.keys = {ObjectKey(LOGICAL_CLUSTERS, f"cluster{number}", "", "cluster") for number in range(count)}

    def wanted(self) -> set[ObjectKey]:
        return self.keys

    def held(self) -> set[ObjectKey]:
        return set()

    async def release(self, keys: Sequence[ObjectKey]) -> None:
        assert not keys

    def read(self) -> None:
        self.reads += 1


@pytest.mark.parametrize(("count", "filters"), [(0, 1), (MAX_SELECTED, MAX_SELECTED + 1), (MAX_SELECTED + 1, 2)])
async def test_filters_of_single_objects_are_bounded(count: int, filters: int) -> None:
    subjects = SelectedSubjects("east", ("fixed",), Chosen(count))
    await subjects.follow_all()
    assert len(subjects.filters()) == filters
    assert len(await subjects.unread()) == 0


class Moving(Chosen):
    """A selection that notes whether it counts as changed while rows are dropped."""

    def __init__(self) -> None:
        super().__init__(2)
        self.subjects = SelectedSubjects("east", (), self)
        self.changed_meanwhile: list[bool] = []

    async def release(self, keys: Sequence[ObjectKey]) -> None:
        self.changed_meanwhile.append(self.subjects.changed)


async def test_what_was_selected_is_unread_while_the_rows_of_what_left_are_dropped() -> None:
    moving = Moving()
    await moving.subjects.follow_all()
    assert not moving.subjects.changed
    first, second = sorted(moving.keys)
    moving.keys, moving.version = {second, ObjectKey(LOGICAL_CLUSTERS, "later", "", "cluster")}, 2
    found = await moving.subjects.unread()
    assert moving.changed_meanwhile[-1]
    moving.subjects.read(found)
    assert not moving.subjects.changed
    assert first not in moving.keys


def test_each_replicated_resource_is_followed_whole_or_selected() -> None:
    patterns = [each.split(".") for each in whole_filters("east")]
    types = {ResourceType(*name, "f" * 64) for name in REPLICATED | REPLICATED_IF_ANNOTATED}
    for type in types | INTERNAL:
        tokens = state_subject("east", ObjectKey(type, "abcdefgh", "", "name")).split(".")
        matching = [
            each
            for each in patterns
            if each[3:] and all(a in ("*", ">", b) for a, b in zip(each, tokens, strict=False))
        ]
        assert len(matching) == (0 if (type.group, type.resource) in SELECTED else 1), type
    assert (LOGICAL_CLUSTERS.group, LOGICAL_CLUSTERS.resource) in SELECTED


async def test_what_could_not_be_read_is_read_the_next_time() -> None:
    """The connection may be lost between the selection's change and the reading."""
    chosen = Chosen(2)
    subjects = SelectedSubjects("east", (), chosen)
    first, second = await subjects.unread()
    subjects.read([first])
    assert subjects.changed
    assert not chosen.reads, "one was not read"
    assert await subjects.unread() == [second]
    subjects.read([second])
    assert not subjects.changed
    assert chosen.reads == 1
