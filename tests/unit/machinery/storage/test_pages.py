"""A scope is read to its end, whatever its size is to that of a page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.types import CONFIG_MAPS
from atoll.machinery.storage.contract import Position, Record, Scope
from atoll.machinery.storage.pages import (
    PAGE,
    each_key_in_snapshots,
    each_record,
    each_record_in_snapshots,
    each_revision,
    position_after,
)

SCOPE = Scope(CONFIG_MAPS, "home")


class Rows:
    """So many rows, which count how often they are asked."""

    def __init__(self, number: int) -> None:
        self.keys = [ObjectKey(CONFIG_MAPS, "home", f"n{at % 3}", f"{at:05}") for at in range(number)]
        self.keys.sort()
        self.requests = 0

    def scan(self, scope: Scope, after: Position | None = None, limit: int = 500) -> list[Record]:
        self.requests += 1
        left = [key for key in self.keys if after is None or position_after(key) > after]
        return [Record(key, 1, b"{}") for key in left[:limit]]

    def revisions(self, scope: Scope, after: Position | None = None, limit: int = 500) -> list[tuple[ObjectKey, int]]:
        return [(record.key, record.revision) for record in self.scan(scope, after, limit)]


@pytest.mark.parametrize(
    ("number", "pages"), [(0, 1), (1, 1), (PAGE - 1, 1), (PAGE, 2), (PAGE + 1, 2), (2 * PAGE + 1, 3)]
)
def test_every_row_comes_once_and_in_order(number: int, pages: int) -> None:
    rows = Rows(number)
    assert [record.key for record in each_record(rows, SCOPE)] == rows.keys
    assert rows.requests == pages
    assert [key for key, _ in each_revision(rows, SCOPE)] == rows.keys


class Store:
    """Counts open snapshots of its rows."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.open = 0

    @contextmanager
    def snapshot(self) -> Iterator[Any]:
        self.open += 1
        yield self.rows
        self.open -= 1


@pytest.mark.parametrize("number", [0, PAGE, 2 * PAGE + 1])
def test_no_snapshot_is_open_between_rows(number: int) -> None:
    store = Store(Rows(number))
    found = [(key, store.open) for key in each_key_in_snapshots(store, SCOPE)]
    assert found == [(key, 0) for key in store.rows.keys]
    records = [(record.key, store.open) for record in each_record_in_snapshots(store, SCOPE)]
    assert records == found
