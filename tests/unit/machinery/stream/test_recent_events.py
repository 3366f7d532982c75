"""What a consumer keeps of the events that it had last: one of each object, of few objects."""

from __future__ import annotations

import pytest

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.stream.consumer import recent_events
from atoll.machinery.stream.consumer.recent_events import RecentEvents
from atoll.machinery.stream.events import Event
from atoll.machinery.stream.publisher.log_events import from_entry
from harness.models.shard_log import LOGICAL_CLUSTERS, ShardLog, Source


def cluster(number: int) -> ObjectKey:
    return ObjectKey(LOGICAL_CLUSTERS, f"c{number}", "", "cluster")


def put(log: ShardLog, number: int, turn: int = 0) -> Event:
    return from_entry("state", Source("root"), log.put(cluster(number), turn=str(turn)))


def test_of_an_object_its_last_event_is_there() -> None:
    log, recent = ShardLog(), RecentEvents()
    events = [put(log, number, turn) for turn in range(3) for number in range(2)]
    recent.add(events)
    assert recent.of([cluster(1), cluster(2)]) == {cluster(1): events[-1]}
    recent.clear()
    assert recent.of([cluster(1)]) == {}


@pytest.mark.parametrize(("most", "most_bytes"), [(2, 1 << 20), (100, 2)])
def test_those_that_came_first_go(most: int, most_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    log, recent = ShardLog(), RecentEvents()
    events = [put(log, number) for number in (0, 1, 0, 2)]
    monkeypatch.setattr(recent_events, "MOST", most)
    monkeypatch.setattr(recent_events, "MOST_BYTES", most_bytes * len(events[0].payload))
    recent.add(events)
    assert set(recent.of(map(cluster, range(3)))) == {cluster(0), cluster(2)}
