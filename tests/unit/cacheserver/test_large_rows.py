"""Rows of large objects are made between turns of the loop, and are those that would be made at once."""

from __future__ import annotations

import asyncio

from atoll.cacheserver import rows
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, encode
from atoll.machinery.storage.contract import Record

KEY = ObjectKey(ResourceType("apis.kcp.io", "apiexports", "cache"), "abcdefgh12345678", "", "widgets")


def replica(count: int) -> tuple[Record, bytes]:
    """A replica with so many lists, and its row."""
    obj: Object = {"metadata": {"name": "widgets", "uid": "u"}, "spec": {"lists": [[at] for at in range(count)]}}
    value, hole = encode(obj)
    record = Record(KEY, 7, value[:hole] + b"%016d" % 7 + value[hole + 16 :])
    return record, encode(rows._row(obj, "amber", 7))[0]


async def turns_for(record: Record, row: bytes) -> int:
    """Turns of the loop while a row is made."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counter = asyncio.create_task(count())
    try:
        assert (await rows._encoded(record, "amber"))[0] == row
    finally:
        counter.cancel()
    return turns


async def test_the_loop_goes_on_while_the_row_of_a_large_object_is_made() -> None:
    assert await turns_for(*replica(10)) == 0
    assert await turns_for(*replica(200_000)) >= 1
