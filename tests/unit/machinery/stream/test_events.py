"""Events: a message decodes to the event that it encodes, and a message with false data is refused."""

from __future__ import annotations

import msgspec
import pytest
from google_crc32c import value as crc32c
from hypothesis import given
from hypothesis import strategies as st

from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.stream import events
from atoll.machinery.stream.events import Event, Malformed, Operation, Phase
from atoll.machinery.stream.publisher.log_events import control, find_hole, from_entry, tombstone
from harness.data.stored_headers import encode_headers
from harness.models.shard_log import CONFIGMAPS, SECRETS, ShardLog, Source

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
KEY = ObjectKey(CONFIGMAPS, "c1", "default", "m")


def round_trip(event: Event) -> Event:
    return events.decode(event.subject, encode_headers(event), event.payload)


@given(st.builds(ObjectKey, st.builds(ResourceType, TEXT, TEXT, TEXT), TEXT, TEXT, TEXT))
def test_any_key_travels_in_ascii_headers(key: ObjectKey) -> None:
    event = tombstone(Source(), key, 1_700_000_000_000_000)
    headers = encode_headers(event)
    assert all(value.isascii() and value.isprintable() for value in headers.values())
    assert round_trip(event) == event


def test_every_kind_of_change_travels_whole() -> None:
    log = ShardLog()
    log.put(KEY)
    log.put(KEY, data={"a": "b"})
    log.delete(KEY)
    log.put(ObjectKey(SECRETS, "c1", "default", "s"), sealed=True)
    for entry in log.entries:
        event = from_entry("changes", log.identity, entry)
        assert round_trip(event) == event
        assert event.intact
        assert (event.revision, event.previous) == (entry.revision, entry.previous_of_type)


@pytest.mark.parametrize("operation", [Operation.RESYNC, Operation.FENCE])
@pytest.mark.parametrize("phase", list(Phase))
def test_control_events_travel_whole(operation: Operation, phase: Phase) -> None:
    event = control("state", operation, Source(), 17, phase)
    assert round_trip(event) == event
    assert event.subject == "atoll.state.root.-"


def test_a_delete_carries_the_object_with_the_revision_of_the_deletion() -> None:
    log = ShardLog()
    log.put(KEY, data={"a": "b"})
    entry = log.delete(KEY)
    event = from_entry("changes", log.identity, entry)
    assert event.payload == entry.value.replace(b"%d" % entry.previous, b"%d" % entry.revision)
    assert event.intact


def test_digits_elsewhere_in_the_object_are_not_taken_for_its_revision() -> None:
    log = ShardLog()
    entry = log.put(KEY, annotations={"aaa": "x"})
    decoy = entry.value.replace(b'"aaa":"x"', b'"resourceVersion":"%d"' % entry.revision)
    hole = decoy.rindex(b'"resourceVersion":"') + len(b'"resourceVersion":"')
    crc = crc32c(decoy[:hole] + b"0" * 16 + decoy[hole + 16 :])
    assert find_hole(decoy, crc, entry.revision) == hole


def test_a_record_that_fails_its_checksum_makes_an_event_that_says_so() -> None:
    log = ShardLog()
    entry = log.put(KEY, data={"a": "b"})
    damaged = msgspec.structs.replace(entry, value=entry.value.replace(b'"a"', b'"c"'))
    event = from_entry("changes", log.identity, damaged)
    assert not event.intact
    assert not round_trip(event).intact


def test_a_payload_changed_on_the_way_is_not_intact() -> None:
    log = ShardLog()
    event = from_entry("changes", log.identity, log.put(KEY, data={"a": "b"}))
    assert not msgspec.structs.replace(event, payload=event.payload.replace(b'"b"', b'"d"')).intact
    assert msgspec.structs.replace(event, hole=-1).intact is False


def test_an_event_on_the_subject_of_another_object_is_refused() -> None:
    log = ShardLog()
    event = from_entry("changes", log.identity, log.put(KEY))
    with pytest.raises(Malformed, match="an event of"):
        events.decode("atoll.changes.root.core.core.configmaps.c2", encode_headers(event), event.payload)
    with pytest.raises(Malformed, match="from '/shards/root/changes'"):
        state = event.subject.replace("changes", "state") + "." + "a" * 32
        events.decode(state, encode_headers(event), event.payload)


@pytest.mark.parametrize(
    "name", [name for name in encode_headers(tombstone(Source(), KEY, 1)) if name.startswith("Atoll-")]
)
def test_a_message_without_one_of_our_headers_is_refused(name: str) -> None:
    event = tombstone(Source(), KEY, 1)
    headers = {key: value for key, value in encode_headers(event).items() if key != name}
    with pytest.raises(Malformed):
        events.decode(event.subject, headers, b"")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Atoll-Operation", "RESYNC"),
        ("Atoll-Operation", "added"),
        ("Atoll-Revision", "x"),
        ("Atoll-Crc32c", "zz"),
        ("ce-subject", "a/b"),
        ("Atoll-Phase", "middle"),
        ("Atoll-Hole", ""),
    ],
)
def test_a_header_with_a_wrong_value_is_refused(name: str, value: str) -> None:
    event = tombstone(Source(), KEY, 1)
    with pytest.raises(Malformed):
        events.decode(event.subject, {**encode_headers(event), name: value}, b"")


def test_headers_of_a_later_version_are_ignored() -> None:
    event = tombstone(Source(), KEY, 1)
    assert events.decode(event.subject, {**encode_headers(event), "Atoll-Later": "x"}, b"") == event
    with pytest.raises(Malformed):
        events.decode(event.subject, None, b"")
