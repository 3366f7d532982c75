"""Rows of a mailbox that a list or a watch does not show: others are served in between, however many they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from atoll.machinery.apiserver.call.call import Call
from atoll.machinery.apiserver.call.requestinfo import parse
from atoll.machinery.apiserver.rest import frames, watch
from atoll.machinery.apiserver.rest import list as listing
from atoll.machinery.kinds.core.configmaps import CONFIGMAPS
from atoll.machinery.meta.user import User
from atoll.machinery.storage.contract import Page
from atoll.machinery.storage.lmdb_store import open_store
from atoll.virtualworkspaces.edge.downsync_item import item_kind
from atoll.virtualworkspaces.edge.mailbox_rows import PAGE_BYTES
from harness.data.stores import store_options
from unit.virtualworkspaces.test_downsync_rows import BOX, ITEMS, World

OBJECTS, OBJECT_BYTES = 40, 8 * 1024
#: Pages of rows that are hidden, at least.
PAGES = OBJECTS * OBJECT_BYTES // PAGE_BYTES


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A mailbox with objects of a kind of which one goes down."""
    store = open_store(store_options(tmp_path))
    found = World(store)
    for number in range(OBJECTS):
        await found.write(CONFIGMAPS, "default", f"hidden-{number:03}", {"data": {"a": "x" * OBJECT_BYTES}})
    await found.write(CONFIGMAPS, "default", "z", {"data": {}})
    await found.list_names("the-one", "z")
    yield found
    await store.close()


class Turns:
    """Counts the turns of the event loop in which others are served."""

    def __init__(self) -> None:
        self.count = 0
        self._next()

    def _next(self) -> None:
        self.count += 1
        self._handle = asyncio.get_running_loop().call_soon(self._next)

    def stop(self) -> int:
        self._handle.cancel()
        return self.count


def call(target: str) -> Call:
    info = parse("GET", f"/apis/edge.kubestellar.io/v2alpha1/downsyncitems{target}".encode())
    return Call(info=info, user=User("syncer"), cluster=BOX, kind=item_kind())


async def test_a_list_lets_others_be_served_between_its_pages(world: World) -> None:
    wanted, parts = call(""), list[bytes]()
    found, first = listing.start(wanted, world.rows)
    turns = Turns()
    async for part in listing.rest_of(wanted, found, first):
        parts.append(part)
    assert turns.stop() > PAGES
    assert b"hidden" not in first + b"".join(parts)
    assert b":z" in first + b"".join(parts)


class Sent:
    """An exchange of a client that takes all at once."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.write = self.parts.append

    async def drain(self) -> None:
        """Return at once."""


async def test_a_watch_lets_others_be_served_between_the_pages_of_what_there_is(world: World) -> None:
    wanted, sent = call("?watch=1"), Sent()
    serving = watch.Watch(wanted, world.rows, watch.checked(wanted), frames.PrivateFrames())
    turns = Turns()
    await serving._initial(cast(Any, sent))
    assert turns.stop() > PAGES
    assert b":z" in b"".join(sent.parts)


async def test_a_page_is_no_longer_than_what_is_looked_at_at_once(world: World) -> None:
    asked: list[int] = []

    def page(*arguments: Any, size_bytes: int = 1 << 20, **options: Any) -> Page:
        asked.append(size_bytes)
        return world.store.page(*arguments, size_bytes=size_bytes, **options)

    world.rows._store = cast(Any, SimpleNamespace(page=page, snapshot=world.store.snapshot))
    asked.clear()
    world.rows.page(ITEMS)
    assert asked[-1] == PAGE_BYTES


async def test_a_watch_waits_for_all_of_its_kinds_at_once(world: World) -> None:
    revision, _ = world.listed()
    cursor = world.rows.cursor(ITEMS, revision)
    for change in ("x", "y"):
        cursor.read()
        tasks = len(asyncio.all_tasks())
        waits = asyncio.create_task(cursor.wait())
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == tasks + 1, "one task, whatever it waits for"
        await world.write(CONFIGMAPS, "default", "z", {"data": {"a": change}})
        await asyncio.wait_for(waits, 5)
        assert len(cursor.read()) == 1
    waits = asyncio.create_task(cursor.wait())
    await asyncio.sleep(0)
    cursor.nudge()
    await asyncio.wait_for(waits, 5)
    await world.write(CONFIGMAPS, "default", "z", {"data": {"a": "now"}})
    await asyncio.wait_for(cursor.wait(), 5)
    cursor.close()
