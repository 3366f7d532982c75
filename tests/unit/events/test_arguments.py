"""Arguments of `atoll.events.changes`, and the fields of an event."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from atoll.events import Event, ObjectKey, ResourceType, changes
from atoll.events.event import Position, decode_position

KEY = ObjectKey(ResourceType("example.com", "beacons", "local"), "root", "default", "north")
FILE = {
    "connect": {"servers": ["nats://127.0.0.1:1"], "user": "operator", "password": "hidden"},
    "shard": "root",
    "streams": {"changes": "atoll-changes-root"},
    "consumers": ["operator", "operator-1"],
}


@pytest.fixture
def stream_file(tmp_path: Path) -> Path:
    path = tmp_path / "stream.json"
    path.write_text(json.dumps(FILE))
    return path


def test_a_file_that_is_not_there_raises_at_the_call(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        changes(tmp_path / "stream.json")


def test_a_file_of_another_form_is_named_and_not_quoted(stream_file: Path) -> None:
    stream_file.write_text(json.dumps({"connect": "hidden"}))
    with pytest.raises(ValueError, match=r"stream\.json is not") as refused:
        changes(stream_file)
    assert "hidden" not in str(refused.value)


def test_a_consumer_that_the_credential_may_not_use_raises_at_the_call(stream_file: Path) -> None:
    with pytest.raises(ValueError, match="'mine' is none of operator, operator-1"):
        changes(stream_file, consumer="mine")


@pytest.mark.parametrize("position", ["newest", "{}", "17"])
def test_text_that_is_no_position_raises_at_the_call(stream_file: Path, position: str) -> None:
    with pytest.raises(ValueError, match="not a position"):
        changes(stream_file, position=position)


def test_a_position_is_read_as_it_was_written() -> None:
    position = Position("2026-01-01T00:00:00Z", "a1", 17, 1_700_000_000_000_000, 1_700_000_000_000_000)
    assert decode_position(position.encode()) == position


def test_an_event_shows_its_object() -> None:
    event = Event("ADDED", 17, "{}", KEY, b'{"kind":"Beacon"}')
    assert event.object == {"kind": "Beacon"}
    assert str(event) == "ADDED beacons.example.com root/default/north 17"


def test_a_sealed_object_is_not_shown() -> None:
    assert Event("ADDED", 17, "{}", KEY, b"\x00\x01", sealed=True).object is None


def test_a_resync_has_a_reason_and_no_object() -> None:
    event = Event("RESYNC", 17, "{}", reason="the stream was created again")
    assert (event.key, event.object) == (None, None)
    assert str(event) == "RESYNC 17 (the stream was created again)"
