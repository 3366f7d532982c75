"""Watchers: sessions over changing connections, resumed where the last one ended, each line recorded as it came.

Short server-side timeouts make bookmarks and resumptions frequent. A watcher begins with the state (as a list and a
watch, or as a watch-list) and begins again that way where the shard says that its revision is gone.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast
from urllib.parse import urlencode

import msgspec
from google_crc32c import value as crc32c

from atoll.machinery.wire.client import ClientError
from fault.recorder.history import Event, Key, Scope, Session, Watch
from fault.traffic.fleet import Fleet

#: Longer than any silence of a sound shard, and than a campaign waits for watchers at its end.
_IDLE_S = 90.0
_END = "k8s.io/initial-events-end"


class _Meta(msgspec.Struct):
    resourceVersion: str
    name: str = ""
    namespace: str = ""
    annotations: dict[str, str] | None = None


class _Object(msgspec.Struct):
    metadata: _Meta


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _List(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    metadata: _Meta
    items: list[dict[str, msgspec.Raw]]


_line = msgspec.json.Decoder(_Line).decode
_object = msgspec.json.Decoder(_Object).decode
_list = msgspec.json.Decoder(_List).decode


class Gone(Exception):
    """The revision to resume from is no longer in the log (410)."""


def event_of(type: str, raw: bytes) -> tuple[Event, dict[str, str]]:
    """An event from its object's bytes, and the object's annotations."""
    metadata = _object(raw).metadata
    annotations = metadata.annotations or {}
    key = Key(annotations.get("kcp.io/cluster", ""), metadata.namespace, metadata.name)
    checksum = 0 if type == "BOOKMARK" else int(crc32c(raw))
    return Event(type, int(metadata.resourceVersion), key, checksum), annotations


def _complete(found: _List) -> list[bytes]:
    """The items with apiVersion and kind, which a list leaves out, as they are stored."""
    lead = {"apiVersion": found.api_version, "kind": found.kind.removesuffix("List")}
    return [msgspec.json.encode({**lead, **item}, order="sorted") for item in found.items]


class Watcher:
    """One watcher of a scope. `watch_list`: the state comes through the watch itself."""

    def __init__(self, watch: Watch, fleet: Fleet, dice: random.Random, watch_list: bool = False) -> None:
        self.watch, self._fleet, self._dice, self._watch_list = watch, fleet, dice, watch_list
        self._resume = 0

    async def run(self) -> None:
        while True:
            await self._fleet.up.wait()
            try:
                await (self._follow() if self._resume else self._begin())
            except (ClientError, TimeoutError):
                await asyncio.sleep(0.01)
            except Gone:
                # Compaction is far away in these runs: a resumable watch was refused, which no scenario excuses.
                self.watch.refused += 1
                self._resume = 0

    async def _begin(self) -> None:
        session = Session(0, initial=True)
        if self._watch_list:
            self.watch.sessions.append(session)
            await self._stream(session, {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"})
            return
        answer = await self._fleet.api.ask("GET", self._path({}))
        assert answer.status == 200, f"a list was refused with {answer.status}: {answer.body!r}"
        found = _list(answer.body)
        session.state = [event_of("ADDED", raw)[0] for raw in _complete(found)]
        session.start = self._resume = int(found.metadata.resourceVersion)
        self.watch.sessions.append(session)
        await self._stream(session, {"resourceVersion": str(session.start)})

    async def _follow(self) -> None:
        session = Session(self._resume)
        self.watch.sessions.append(session)
        await self._stream(session, {"resourceVersion": str(self._resume)})

    async def _stream(self, session: Session, options: dict[str, str]) -> None:
        timeout_s = str(self._dice.choice((1, 3, 3, 4, 120)))
        query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": timeout_s, **options}
        api, path = self._fleet.api, self._path(query)
        stream = await api.http.stream("GET", path, api.headers_for(path), idle_timeout_s=_IDLE_S)
        async with stream:
            assert stream.status == 200, f"a watch was refused with {stream.status}: {await stream.read()!r}"
            async with aclosing(cast(AsyncGenerator[bytes, None], stream.lines())) as lines:
                async for line in lines:
                    self._take(session, _line(line))

    def _take(self, session: Session, line: _Line) -> None:
        raw = bytes(line.object)
        if line.type == "ERROR":
            raise Gone(raw)
        event, annotations = event_of(line.type, raw)
        if session.initial and not session.start:
            if event.type == "BOOKMARK" and annotations.get(_END) == "true":
                session.start = self._resume = event.revision
            else:
                session.state.append(event)
            return
        session.events.append(event)
        self._resume = event.revision

    def _path(self, query: dict[str, str]) -> str:
        scope = self.watch.scope
        where = f"/namespaces/{scope.namespace}" if scope.namespace else ""
        options = dict(query)
        if scope.label:
            options["labelSelector"] = "=".join(scope.label)
        if scope.name:
            options["fieldSelector"] = f"metadata.name={scope.name}"
        return f"/clusters/{scope.cluster}/api/v1{where}/configmaps?{urlencode(options)}"


def eight(clusters: tuple[str, ...]) -> list[tuple[Watch, bool]]:
    """Eight watchers of different scopes, each with whether it begins by watch-list."""
    first, second = clusters[:2]
    red = ("colour", "red")
    scopes = (
        (Scope(first, "default"), False),
        (Scope(second), True),
        (Scope("*"), True),
        (Scope(first, "default", label=red), False),
        (Scope(second, "default", label=("colour", "blue")), True),
        (Scope("*", label=red), False),
        (Scope(first, "default", name="hot-0"), True),
        (Scope("*", "default", name="hot-1"), False),
    )
    return [(Watch(f"watcher {number}", scope), way) for number, (scope, way) in enumerate(scopes)]
