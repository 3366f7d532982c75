"""Clusters that requests name are sought within bounds of time and number."""

from __future__ import annotations

import asyncio

import pytest

from atoll.replication import sought_clusters
from atoll.replication.sought_clusters import KEPT_S, SoughtClusters


class Rows:
    """What is needed; owners become known when a test says so."""

    def __init__(self) -> None:
        self.sought: dict[str, None] = {}
        self.owned: set[str] = set()
        self.unread = ["east"]
        self.now = 0.0
        self._progress = asyncio.Event()

    def seek(self, cluster: str) -> None:
        self.sought[cluster] = None

    def release_sought(self, cluster: str) -> None:
        del self.sought[cluster]

    def has_owner(self, cluster: str) -> bool:
        return cluster in self.owned

    async def progress(self) -> None:
        await self._progress.wait()

    def announce(self) -> None:
        progress, self._progress = self._progress, asyncio.Event()
        progress.set()


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.fixture
def clusters(rows: Rows) -> SoughtClusters:
    return SoughtClusters(rows, lambda: rows.unread, lambda: rows.now)


async def test_a_search_ends_with_an_owner_or_when_all_was_read(rows: Rows, clusters: SoughtClusters) -> None:
    owned, absent = (asyncio.ensure_future(clusters.seek(each)) for each in ("owned", "absent"))
    await asyncio.sleep(0)
    assert list(rows.sought) == ["owned", "absent"]
    rows.owned.add("owned")
    rows.announce()
    assert not await owned
    assert not absent.done()
    rows.unread = []
    rows.announce()
    assert not await absent


async def test_a_search_ends_in_time_and_says_who_was_not_read(
    rows: Rows, clusters: SoughtClusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sought_clusters, "DEADLINE_S", 0.01)
    assert await clusters.seek("a") == ["east"]
    assert "a" in rows.sought, "it is read on"
    monkeypatch.setattr(sought_clusters, "MAX_WAITING", 0)
    monkeypatch.setattr(sought_clusters, "DEADLINE_S", 1000.0)
    assert await clusters.seek("b") == ["east"], "at once"


async def test_the_clusters_sought_last_are_followed_for_a_while(
    rows: Rows, clusters: SoughtClusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sought_clusters, "MAX_SOUGHT", 2)
    rows.unread = []
    for each in ("a", "b", "a", "c"):
        rows.now += 1.0
        assert not await clusters.seek(each)
    assert set(rows.sought) == {"a", "c"}
    rows.now += KEPT_S - 0.5
    await clusters.seek("c")
    assert set(rows.sought) == {"c"}
