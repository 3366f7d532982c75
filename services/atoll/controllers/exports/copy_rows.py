"""Writes of the rows of copies, one at a time or a whole set, for the shards of providers and of consumers.

`cached_copies` and `kept_copies` say what a row has to be. Invariant: a row is written only over the revision that was
read together with its source, so of two concurrent writers the later one reads again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from atoll.machinery.apiserver.writing.batch import LOST
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import LARGE_BYTES, splice
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.process.time_slicing import run_sliced
from atoll.machinery.storage.contract import (
    Delete,
    DeletePrefix,
    Guard,
    Mutation,
    Position,
    Put,
    Record,
    Rows,
    Scope,
    Snapshot,
    Store,
)
from atoll.machinery.storage.pages import position_after

#: Delay of the retry after a concurrent write.
AGAIN = Backoff(0.01, 10.0)
#: Names read at once, and rows written beside each other: they share commits.
_PAGE, _AT_ONCE = 500, 20
#: Time limit for the row of a large object, including the wait for others.
_ENCODE_TIMEOUT_S = 34.0
#: Encodes a row, with a pause between its steps.
Encode = Callable[[Callable[[], None]], tuple[bytes, int]]


async def write(store: Store, key: ObjectKey, stored: Record | None, encode: Encode | None, *guards: Guard) -> bool:
    """Make a row what `encode` returns, which is called here; None: delete it. False: another writer was faster."""
    revision, change = stored.revision if stored is not None else 0, list[Mutation]()
    if encode is not None:
        value, hole = encode(_no_pause)
        if stored is None or splice(value, hole, revision) != stored.value:
            change = [Put(key, value, hole, revision)]
    elif stored is not None:
        change = [Delete(key, revision)]
    try:
        if change:
            await store.submit(change, guards)
    except LOST:
        return False
    return True


async def encoded(encode: Encode, size_bytes: int) -> Encode:
    """Return the result of an encoder as one; a large row is encoded in slices beside the event loop."""
    if size_bytes <= LARGE_BYTES:
        return encode
    found = await run_sliced(encode, _ENCODE_TIMEOUT_S, is_long=True)
    return lambda _: found


async def each_written(names: AsyncIterator[Sequence[str]], write_one: Callable[[str], Awaitable[bool]]) -> bool:
    """Write the rows of pages of names. False if another writer was faster at one of them."""
    settled = True
    async for page in names:
        for start in range(0, len(page), _AT_ONCE):
            settled &= all(await asyncio.gather(*map(write_one, page[start : start + _AT_ONCE])))
    return settled


async def names_in(store: Store, scope: Scope, rows: Callable[[Snapshot], Rows]) -> AsyncIterator[list[str]]:
    """Yield the names of a scope in pages, each read in a snapshot of its own."""
    after: Position | None = None
    while True:
        with store.snapshot() as snapshot:
            page = [key for key, _ in rows(snapshot).revisions(scope, after, _PAGE)]
        yield [key.name for key in page]
        if len(page) < _PAGE:
            return
        after = position_after(page[-1])


async def delete_all(store: Store, scope: Scope) -> None:
    """Delete every row of a scope."""
    while (await store.submit([DeletePrefix(scope)]))[0]:
        pass


def _no_pause() -> None:
    """Do nothing."""
