"""The documents of `follow` are stable: each is byte for byte what it was, matches its schema, and stays decodable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.process.resources import schema_path
from atoll.machinery.stream.events import Event, Malformed
from atoll.machinery.stream.publisher.log_events import from_entry
from atoll.machinery.stream.tenants import structured_events
from atoll.machinery.stream.tenants.structured_events import Origin, decode, encode_change, encode_control, parse_mark
from harness.models.shard_log import CONFIGMAPS, Entry, Source

GOLDEN = Path(__file__).parent / "golden"
#: What is said of an answer has an `id` of its own since then.
LATER = ("follow-bookmark", "follow-resync", "follow-closed")
SOURCE = Source("root", "9d2f4c1e", "b7c0aa31", 1_795_000_000)
ORIGIN = Origin("root", "9d2f4c1e", "b7c0aa31")
BEFORE, NOW = 1_795_000_000_111_111, 1_795_000_123_456_789
OBJECT = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m","resourceVersion":"%016d"}}'
KEY = ObjectKey(CONFIGMAPS, "2x9k4vtw", "default", "m/50%")


def event(operation: int, value: bytes, sealed: bool = False) -> Event:
    return from_entry("changes", SOURCE, Entry(NOW, operation, KEY, value, sealed, 1, BEFORE, BEFORE))


def samples() -> dict[str, bytes]:
    changed, sealed = event(2, OBJECT % NOW), event(1, b"\x01\xffseal", True)
    return {
        "follow-thin": encode_change(changed, before=OBJECT % BEFORE),
        "follow-full": encode_change(changed, full=True),
        "follow-before": encode_change(changed, full=True, before=OBJECT % BEFORE),
        "follow-sealed": encode_change(sealed, full=True, before=b"secret"),
        "follow-deleted": encode_change(event(3, OBJECT % BEFORE), full=True),
        "follow-bookmark": encode_control(ORIGIN, structured_events.BOOKMARK, NOW),
        "follow-resync": encode_control(ORIGIN, structured_events.RESYNC, NOW, reason="the log begins later"),
        "follow-closed": encode_control(
            ORIGIN, structured_events.CLOSED, NOW, state="Revoked", reason="watch of secrets is not allowed any more"
        ),
    }


def validator() -> Any:
    return jsonschema.Draft202012Validator(json.loads(schema_path("events", "follow.schema.json").read_text()))


@pytest.mark.parametrize("name", sorted(samples()))
def test_a_document_is_byte_for_byte_what_it_was_and_matches_the_schema(name: str) -> None:
    kept = (GOLDEN / ("v1.1" if name in LATER else "v1") / f"{name}.json").read_bytes()
    assert samples()[name] + b"\n" == kept
    schema, document = validator(), json.loads(kept)
    schema.validate(document)
    for member in schema.schema["required"]:
        assert not schema.is_valid({key: value for key, value in document.items() if key != member})
    wrong = "BOOKMARK" if "subject" in document else "ADDED"
    assert not schema.is_valid({**document, "atolloperation": wrong})


@pytest.mark.parametrize(
    "path", sorted(GOLDEN.glob("*/follow-*.json")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_a_document_of_every_version_decodes_for_ever(path: Path) -> None:
    found = decode(path.read_bytes())
    assert parse_mark(found.id) == ("9d2f4c1e", "b7c0aa31", found.revision) == (ORIGIN.uid, ORIGIN.lineage, NOW)
    assert found.key == (KEY if found.type.startswith("atoll.object.") else None)


def test_no_two_documents_of_a_revision_have_one_id() -> None:
    """By CloudEvents, source and id say which event it is."""
    at_now = [decode(document).id for name, document in samples().items() if name in {*LATER, "follow-thin"}]
    assert len(set(at_now)) == len(LATER) + 1


def test_only_a_full_event_of_an_open_object_holds_the_object_and_what_was_before() -> None:
    told = {name: decode(document) for name, document in samples().items()}
    assert {name for name, each in told.items() if each.object} == {"follow-full", "follow-before", "follow-deleted"}
    assert {name for name, each in told.items() if each.before} == {"follow-before"}
    assert told["follow-before"].before == json.loads(OBJECT % BEFORE)
    assert b"secret" not in samples()["follow-sealed"]


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"not JSON", b'{"atollrevision": 1}'])
def test_what_is_no_document_is_refused(text: bytes) -> None:
    with pytest.raises(Malformed):
        decode(text)


@pytest.mark.parametrize(("member", "value"), [("atollrevision", "x"), ("subject", "a/b"), ("data", "no")])
def test_a_document_with_a_wrong_value_is_refused(member: str, value: str) -> None:
    good = json.loads(samples()["follow-full"])
    bad = json.dumps({**good, member: value}).encode()
    if member == "data":
        assert not validator().is_valid(json.loads(bad))
        return
    with pytest.raises(Malformed):
        decode(bad)


@pytest.mark.parametrize("text", ["", "1-2", "--1", "uid-lineage-x", "uid-lineage-²"])
def test_what_is_no_id_is_no_place_to_go_on(text: str) -> None:
    with pytest.raises(ValueError):
        parse_mark(text)
