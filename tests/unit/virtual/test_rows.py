"""Rows of a view in its own store: each is written when it changed, and a restart keeps it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.kinds.custom import kinds_of_resource_schema
from atoll.machinery.meta.names import LOCAL, ObjectKey
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.storage.lmdb_store import LmdbStore
from atoll.virtualworkspace_sdk.rows import RowRefused, Rows, open_rows
from atoll.virtualworkspace_sdk.view import Key
from harness.clients.exports import schema

KEY = Key("home", "default", "north")
KIND = kinds_of_resource_schema(schema("circles"), LOCAL)[0]


def opened(directory: Path) -> Rows:
    return Rows(open_rows(str(directory / "rows"), anywhere=True), KIND)


def stored(rows: Rows, key: Key = KEY) -> Object | None:
    with rows.store.snapshot() as snapshot:
        record = snapshot.get(ObjectKey(KIND.type, *key))
    return decode(record.value) if record is not None else None


def content(colour: str, **metadata: Any) -> Object:
    return {"spec": {"colour": colour}, **({"metadata": metadata} if metadata else {})}


async def test_a_row_is_written_when_it_changed_and_stays_who_it_is(tmp_path: Path) -> None:
    rows = opened(tmp_path)
    await rows.write(KEY, content("red", labels={"a": "b"}))
    first = stored(rows)
    assert first is not None
    assert first["metadata"]["annotations"] == {"kcp.io/cluster": "home"}
    assert (first["kind"], first["metadata"]["labels"]) == ("Circle", {"a": "b"})
    await rows.write(KEY, content("red", labels={"a": "b"}))
    assert stored(rows) == first
    await rows.write(KEY, content("blue"))
    await close(rows)
    rows = opened(tmp_path)
    second = stored(rows)
    assert second is not None
    assert second["metadata"]["uid"] == first["metadata"]["uid"]
    assert int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])
    assert list(rows.each_key()) == [KEY]
    await rows.write(KEY, None)
    await rows.write(KEY, None)
    assert stored(rows) is None
    await rows.write(KEY, content("red"))
    third = stored(rows)
    assert third is not None
    assert third["metadata"]["uid"] != first["metadata"]["uid"]
    await close(rows)


async def test_what_the_definition_does_not_allow_is_no_row(tmp_path: Path) -> None:
    rows = opened(tmp_path)
    with pytest.raises(RowRefused):
        await rows.write(KEY, {"spec": {"colour": 1}})
    assert stored(rows) is None
    await close(rows)


async def test_an_author_says_nothing_of_identity_and_place(tmp_path: Path) -> None:
    rows = opened(tmp_path)
    said = {"name": "other", "namespace": "kube-system", "uid": "mine", "annotations": {"kcp.io/cluster": "other"}}
    await rows.write(KEY, content("red", **said))
    found = stored(rows)
    assert found is not None
    metadata = found["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("north", "default")
    assert metadata["annotations"] == {"kcp.io/cluster": "home"}
    assert metadata["uid"] != "mine"
    await close(rows)


async def test_rows_are_complete_once_and_for_ever(tmp_path: Path) -> None:
    rows = opened(tmp_path)
    assert not rows.complete
    rows.completed()
    assert rows.complete
    await close(rows)
    rows = opened(tmp_path)
    assert rows.complete
    await close(rows)


async def close(rows: Rows) -> None:
    assert isinstance(rows.store, LmdbStore)
    await rows.store.close()
