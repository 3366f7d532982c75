"""How many objects follow a page of a list, and from which number on they are not counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.machinery.storage.contract import Scope
from atoll.machinery.storage.lmdb_store import open_store
from atoll.machinery.storage.reading import lists
from harness.data.stores import CONFIGMAPS, create, store_options


@pytest.mark.parametrize(("counted", "remaining"), [(5, 5), (4, -1), (3, -1)])
async def test_what_follows_a_later_page_is_counted_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: int, remaining: int
) -> None:
    monkeypatch.setattr(lists, "MAX_COUNTED", counted)
    store = open_store(store_options(tmp_path))
    await create(store, *(f"n{number}" for number in range(9)))
    await create(store, "a", "b", cluster="root1")
    scope = Scope(CONFIGMAPS, "root")
    first = store.page(scope, limit=2)
    second = store.page(scope, at=first.revision, after=first.after, limit=2)
    await store.close()
    assert (first.remaining, second.remaining) == (7, remaining)
