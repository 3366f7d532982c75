"""Sharing between watches: readings of the ring by scope and position, frames by reading and form."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from atoll.machinery.apiserver.call.negotiation import PROTOBUF, Form
from atoll.machinery.apiserver.rest import frames
from atoll.machinery.apiserver.rest.frames import FrameCache, PrivateFrames
from atoll.machinery.kinds import protobuf
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import encode_json
from atoll.machinery.meta.status import Details, Expired, InternalError
from atoll.machinery.storage.contract import Change, Cursor, Interest, Operation, Scope
from atoll.machinery.storage.lmdb_store import open_store
from harness.data.stores import CONFIGMAPS, key, put, store_options


def _reading(value: bytes = b"{}") -> tuple[Change, ...]:
    return (Change(7, Operation.ADDED, ObjectKey(CONFIGMAPS, "c", "n", "o"), None, value),)


def joined(cache: FrameCache, reading: Sequence[Change], form: int) -> bytes | None:
    """The frames of a reading in a form, as a watch finds them."""
    found = cache.joined.get((id(reading), form))
    return found[1] if found is not None else None


def test_frames_of_a_reading_are_shared_in_the_same_form_only() -> None:
    cache, reading = FrameCache(), _reading()
    cache.add_joined(reading, 1, b"whole")
    cache.add_joined(reading, 2, b"table")
    assert (joined(cache, reading, 1), joined(cache, reading, 2), joined(cache, reading, 3)) == (
        b"whole",
        b"table",
        None,
    )


def test_another_reading_with_the_same_changes_has_no_frames_of_the_first() -> None:
    cache, reading = FrameCache(), _reading()
    cache.add_joined(reading, 1, b"whole")
    assert joined(cache, _reading(), 1) is None


def test_watches_through_a_view_share_nothing() -> None:
    cache, reading = PrivateFrames(), _reading()
    cache.add_joined(reading, 1, b"whole")
    assert joined(cache, reading, 1) is None


def test_joined_frames_are_bounded_with_the_changes_they_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_JOINED_BYTES", 1000)
    cache, first = FrameCache(), _reading(b"x" * 1001)
    cache.add_joined(first, 1, b"small")
    assert joined(cache, first, 1) == b"small"
    cache.add_joined(second := _reading(), 1, b"small")
    assert (joined(cache, first, 1), joined(cache, second, 1)) == (None, b"small")


async def test_a_reading_is_shared_by_cursors_of_the_same_scope_name_position_and_limit(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path))

    def cursor(cluster: str = "", namespace: str = "", name: str = "", since: int = 0) -> Cursor:
        return store.cursor(Scope(CONFIGMAPS, cluster, namespace), since or begin, Interest(name=name))

    def names(of: Cursor, limit: int = 500) -> list[str]:
        return [change.key.name for change in of.read(limit)]

    begin = store.hub.last
    [first] = await store.submit([put(key("a", cluster="c", namespace="n"))])
    await store.submit([put(key("b", cluster="c", namespace="m"))])
    await store.submit([put(key("c", cluster="d", namespace="n"))])
    alike = cursor(), cursor()
    assert alike[0].read() is alike[1].read()
    assert [each.position for each in alike] == [store.hub.last] * 2
    for _ in range(2):
        assert names(cursor()) == ["a", "b", "c"]
        assert names(cursor("c")) == ["a", "b"]
        assert names(cursor("c", "n")) == ["a"]
        assert names(cursor(name="b")) == ["b"]
        assert names(cursor(since=first)) == ["b", "c"]
        assert names(cursor(), 2) == ["a", "b"]
    paged = cursor(), cursor()
    assert [names(each, 2) for each in paged] == [["a", "b"]] * 2
    assert [names(each, 2) for each in paged] == [["c"]] * 2
    more = cursor()
    await store.submit([put(key("d", cluster="d", namespace="n"))])
    assert names(more) == ["a", "b", "c", "d"]
    assert [names(each) for each in alike] == [["d"]] * 2
    await store.close()


def test_an_error_is_a_status_in_protobuf_too() -> None:
    status = Expired("too old", Details("web", "apps", "deployments", retry_after_s=1)).status()
    frame = frames.framed(Form(PROTOBUF), frames.ERROR, encode_json(status))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert frame[4:].startswith(b"\x0a\x05ERROR\x12")
    assert protobuf.decode(frame[frame.index(protobuf.MAGIC) :]) == status


def test_an_event_that_protobuf_cannot_hold_is_an_error() -> None:
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    with pytest.raises(InternalError):
        frames.framed(Form(PROTOBUF), frames.ADDED, encode_json({**config_map, "later": 1}))
    bare = frames.framed(Form(PROTOBUF), frames.ADDED, encode_json({**config_map, "data": {}}))
    assert protobuf.decode(bare[bare.index(protobuf.MAGIC) :]) == config_map
