"""A stream that refuses every sequence counts as a hanging server only while its end does not move."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from atoll.machinery.stream.connection import Unresponsive
from atoll.machinery.stream.publisher import stream_admin, stream_writer
from atoll.machinery.stream.publisher.changes import ChangesWriter
from atoll.machinery.stream.publisher.publish_window import OutOfSequence

#: Sessions of one run, more than a stream may refuse until the writer gives up.
_SESSIONS = 20


class _Ended(Exception):
    """The run used all its sessions."""


async def refused(monkeypatch: pytest.MonkeyPatch, ends: Iterator[int], acks: Iterator[int]) -> int:
    """Run a writer whose every session is refused, with these ends of the stream and acknowledgements.

    Return the number of sessions until the writer gives up on the server. Raise _Ended if it does not.
    """
    sessions = 0

    async def tip(info: object) -> SimpleNamespace:
        nonlocal sessions
        if sessions == _SESSIONS:
            raise _Ended
        sessions += 1
        return SimpleNamespace(last_sequence=next(ends))

    async def nothing(*_: object) -> None:
        return None

    async def follow(*_: object) -> None:
        raise OutOfSequence("wrong last sequence")

    async def opened(*_: object) -> SimpleNamespace:
        return SimpleNamespace(acks=next(acks))

    monkeypatch.setattr(stream_writer, "StreamTail", lambda *_: SimpleNamespace(tip=tip))
    monkeypatch.setattr(stream_admin, "ensure_stream", nothing)
    monkeypatch.setattr(asyncio, "sleep", nothing)
    writer = object.__new__(ChangesWriter)
    fields: dict[str, Any] = {"_keys": None, "_definition": {}, "stream": "s", "_mismatches": 0}
    methods: dict[str, Any] = {"_plan": lambda _: None, "_open": opened, "_close": nothing, "_follow": follow}
    methods["consumer"] = str
    for name, value in {**fields, **methods}.items():
        setattr(writer, name, value)
    try:
        await writer._run(cast(Any, None))
    except Unresponsive:
        return sessions
    raise AssertionError("the run ended by itself")


def always(value: int) -> Iterator[int]:
    return iter([value] * _SESSIONS)


async def test_an_end_that_stands_still_is_a_server_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await refused(monkeypatch, always(7), always(0)) == 5


async def test_an_end_that_moves_is_the_work_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(_Ended):
        await refused(monkeypatch, iter(range(_SESSIONS)), always(0))


async def test_what_is_acknowledged_between_shows_a_server_that_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(_Ended):
        await refused(monkeypatch, always(7), always(1))


async def test_one_step_of_the_end_begins_the_count_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = iter([7, 7, 7, 7, 8, 8, 8, 8, 8, 8])
    assert await refused(monkeypatch, ends, always(0)) == 9
