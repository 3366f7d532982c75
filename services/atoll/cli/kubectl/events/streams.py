"""The changes of workspaces as `follow` sends them: opened, resumed where they broke, and merged.

`command` reads with this. Each workspace has a stream for every sixteen resources. Invariant: what was there at the
beginning comes in the order of revisions, each stream's own order is kept after it, and no change comes twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Generic, TypeVar

import msgspec

from atoll.cli.kubectl.plugin import Failure
from atoll.machinery.client.client import Client
from atoll.machinery.meta.status import ApiError, Forbidden, Invalid, NotFound
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.stream.events import Malformed
from atoll.machinery.stream.tenants import structured_events
from atoll.machinery.stream.tenants.structured_events import StructuredEvent
from atoll.machinery.wire.pending_response import ClientError, ConnectionLost

PATH = "/follow"
#: Resources of one stream.
RESOURCES = 16
#: Streams that are read at a time for what was there already, and that may stay open.
PARALLEL, MAX_OPEN = 16, 256
#: Three bookmarks.
_SILENCE_S = 30.0
_BACKOFF = Backoff(0.2, 10.0)
_REFUSED = (Forbidden, Invalid, NotFound)

Row = TypeVar("Row")


class Received(msgspec.Struct, frozen=True):
    """A document of one workspace, and its text."""

    workspace: str
    event: StructuredEvent
    text: bytes


class Stream:
    """The changes of some resources of one workspace. `client` is for the workspace's events."""

    def __init__(self, client: Client, workspace: str, resources: Sequence[str], since: str) -> None:
        self._client, self.workspace = client, workspace
        self._query = [("resource", each) for each in resources] + [("full", "true"), ("previous", "true")]
        self._since = since

    async def documents(self, *, live: bool) -> AsyncGenerator[Received, None]:
        """The documents up to the first bookmark; with `live` for ever, over interruptions once it began. Raises as a
        request does, and Failure once the server says that nothing more will come."""
        failures, began = 0, False
        while True:
            try:
                async with aclosing(self._once(live=live)) as found:
                    async for received in found:
                        failures, began = 0, True
                        yield received
                if not live:
                    return
            except (ApiError, ClientError, TimeoutError) as error:
                if not (live and began and _may_pass(error)):
                    raise
            failures += 1
            await asyncio.sleep(_BACKOFF.delay_s(failures))

    async def _once(self, *, live: bool) -> AsyncGenerator[Received, None]:
        query = [*self._query, ("since", self._since)]
        async with self._client.stream(PATH, query, idle_timeout_s=_SILENCE_S) as stream:
            async for line in stream.lines():
                received = self._received(line)
                yield received
                self._since = received.event.id
                if received.event.atolloperation == structured_events.BOOKMARK and not live:
                    return

    def _received(self, line: bytes) -> Received:
        try:
            event = structured_events.decode(line)
        except Malformed as error:
            raise Failure(f"{self.workspace}: the server sent what is no event: {error}") from error
        if event.atolloperation == structured_events.CLOSED:
            raise Failure(f"{self.workspace}: {event.atollstate}: {event.atollreason}")
        return Received(self.workspace, event, line)


async def permitted(client: Client, resources: Sequence[str], refused: Callable[[str, ApiError], None]) -> list[str]:
    """Those of some resources whose changes the caller may see; `refused` hears of the others, one by one."""
    if len(resources) > RESOURCES:
        parts = [resources[at : at + RESOURCES] for at in range(0, len(resources), RESOURCES)]
        return [each for part in parts for each in await permitted(client, part, refused)]
    try:
        async with client.stream(PATH, [("resource", each) for each in resources]):
            return list(resources)
    except _REFUSED as error:
        if len(resources) == 1:
            refused(resources[0], error)
            return []
    half = len(resources) // 2
    return await permitted(client, resources[:half], refused) + await permitted(client, resources[half:], refused)


def _may_pass(error: Exception) -> bool:
    return not isinstance(error, ApiError) or error.code == 429 or error.code >= 500


class _Failed(msgspec.Struct):
    error: Exception


class Merged(Generic[Row]):
    """Several streams as one. `make` turns a document into what is kept of it, at once: objects are large."""

    def __init__(self, streams: Sequence[Stream], make: Callable[[Received], Row], *, live: bool) -> None:
        if live and len(streams) > MAX_OPEN:
            raise Failure(
                f"{len(streams)} streams are needed, more than {MAX_OPEN}: name resources or fewer workspaces"
            )
        self._streams, self._make, self._live = streams, make, live
        self._room = asyncio.Semaphore(MAX_OPEN if live else PARALLEL)
        self._queue: asyncio.Queue[tuple[int, Row] | _Failed | None] = asyncio.Queue(1000)

    async def history(self) -> AsyncGenerator[list[Row], None]:
        """First what was there already, in order; with `live` then each change, alone, for ever."""
        tasks = [asyncio.create_task(self._read(each)) for each in self._streams]
        try:
            yield await self._caught_up()
            while self._live:
                found = self._checked(await self._queue.get())
                if found is not None:
                    yield [found[1]]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _caught_up(self) -> list[Row]:
        behind, found = len(self._streams), []
        while behind:
            item = self._checked(await self._queue.get())
            if item is None:
                behind -= 1
            else:
                found.append(item)
        return [made for _, made in sorted(found, key=lambda each: each[0])]

    def _checked(self, item: tuple[int, Row] | _Failed | None) -> tuple[int, Row] | None:
        if isinstance(item, _Failed):
            raise item.error
        return item

    async def _read(self, stream: Stream) -> None:
        """Put each change on the queue, and None once all that was there already is on it."""
        caught_up = False
        try:
            async with self._room:
                async for received in stream.documents(live=self._live):
                    if received.event.atolloperation != structured_events.BOOKMARK:
                        await self._queue.put((received.event.revision, self._make(received)))
                    elif not caught_up:
                        caught_up = True
                        await self._queue.put(None)
                if not caught_up:
                    raise ConnectionLost("the answer ended before what was there already had come", begun=True)
        except (ApiError, ClientError, Failure, TimeoutError) as error:
            await self._queue.put(_Failed(error))
