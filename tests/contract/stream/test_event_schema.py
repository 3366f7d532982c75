"""The event schema is stable: old bytes stay decodable, new events match the schema."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml
from msgspec.structs import replace

from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.process.resources import schema_path
from atoll.machinery.stream.definitions import definition
from atoll.machinery.stream.events import Event, Operation, Phase, decode
from atoll.machinery.stream.publisher.log_events import control, from_entry, tombstone
from harness.data.stored_headers import encode_headers, parse_headers
from harness.models.shard_log import CONFIGMAPS, LOGICAL_CLUSTERS, Entry, Source

GOLDEN = Path(__file__).parent / "golden"
SOURCE = Source("root", "9d2f4c1e", "b7c0aa31", 1_795_000_000)
GADGETS = ResourceType("gadgets.example.com", "gadgets", "3f" * 32)
HOLED = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m","resourceVersion":"%016d"}}'
BEFORE, NOW = 1_795_000_000_111_111, 1_795_000_123_456_789


def entry(operation: Operation, key: ObjectKey, value: bytes, crc: int, sealed: bool = False) -> Entry:
    return Entry(NOW, int(operation), key, value, sealed, crc, BEFORE, BEFORE)


def samples() -> dict[str, Event]:
    """One event of each sort, the same on every run."""
    config_map = ObjectKey(CONFIGMAPS, "2x9k4vtw", "default", "m")
    odd = ObjectKey(GADGETS, "system:admin", "", "tyre/größe: 50%")
    plain = 0x7A564965
    return {
        "added": from_entry("changes", SOURCE, entry(Operation.ADDED, config_map, HOLED % NOW, plain)),
        "modified": from_entry("changes", SOURCE, entry(Operation.MODIFIED, odd, HOLED % NOW, plain)),
        "moved": from_entry("changes", SOURCE, entry(Operation.MOVED, config_map, HOLED % NOW, plain)),
        "deleted": from_entry("changes", SOURCE, entry(Operation.DELETED, config_map, HOLED % BEFORE, plain)),
        "sealed": from_entry("changes", SOURCE, entry(Operation.ADDED, config_map, b"\x01\xff\r\nseal", 0x12AB, True)),
        "state": from_entry("state", SOURCE, entry(Operation.ADDED, config_map, HOLED % NOW, plain)),
        "tombstone": tombstone(SOURCE, ObjectKey(LOGICAL_CLUSTERS, "2x9k4vtw", "", "cluster"), NOW),
        "resync": control("changes", Operation.RESYNC, SOURCE, BEFORE),
        "refill-end": control("state", Operation.RESYNC, SOURCE, BEFORE, Phase.END),
        "refilled": replace(
            from_entry("state", SOURCE, entry(Operation.ADDED, config_map, HOLED % NOW, plain)),
            phase=Phase.REFILL,
            filling=NOW,
        ),
        "fence": control("changes", Operation.FENCE, SOURCE, NOW),
    }


def to_bytes(event: Event) -> bytes:
    """Subject, header block and payload, in the order of a NATS message."""
    headers = "".join(f"{name}: {value}\r\n" for name, value in encode_headers(event).items())
    return f"{event.subject}\r\nNATS/1.0\r\n{headers}\r\n".encode() + event.payload


def from_bytes(data: bytes) -> Event:
    subject, _, rest = data.partition(b"\r\n")
    block, _, payload = rest.partition(b"\r\n\r\n")
    return decode(subject.decode(), parse_headers(block), payload)


def golden_files() -> list[Path]:
    return sorted(GOLDEN.rglob("*.nats"))


@pytest.mark.parametrize("name", sorted(samples()))
def test_an_event_is_byte_for_byte_what_it_was(name: str) -> None:
    assert to_bytes(samples()[name]) == (GOLDEN / "v1" / f"{name}.nats").read_bytes()


@pytest.mark.parametrize("path", golden_files(), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_bytes_of_every_version_decode_for_ever(path: Path) -> None:
    assert from_bytes(path.read_bytes()) == samples()[path.stem]


def test_no_sample_is_without_golden_bytes() -> None:
    assert {path.stem for path in golden_files()} == set(samples())


@pytest.mark.parametrize("name", ["added", "modified", "moved", "deleted", "state", "tombstone"])
def test_samples_are_intact(name: str) -> None:
    assert samples()[name].intact


@pytest.mark.parametrize("name", sorted(samples()))
def test_headers_are_what_the_schema_says(name: str) -> None:
    schema = json.loads(schema_path("events", "headers.schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    headers = encode_headers(samples()[name])
    validator.validate(headers)
    for required in schema["required"]:
        assert not validator.is_valid({key: value for key, value in headers.items() if key != required})
    wrong = "RESYNC" if samples()[name].key else "ADDED"
    assert not validator.is_valid({**headers, "Atoll-Operation": wrong})


def test_every_header_we_send_is_in_the_schema() -> None:
    schema = json.loads(schema_path("events", "headers.schema.json").read_text())
    sent = {header for event in samples().values() for header in encode_headers(event)}
    assert sent <= set(schema["properties"])


def test_the_asyncapi_document_names_the_subjects_we_use() -> None:
    document = yaml.load(schema_path("events", "asyncapi.yaml").read_text(), yaml.CSafeLoader)
    assert document["asyncapi"] == "3.0.0"
    tokens = {name: channel["address"].split(".") for name, channel in document["channels"].items()}
    for event in samples().values():
        name = f"{event.kind}{'' if event.key else 'Control'}"
        actual = event.subject.split(".")
        assert len(actual) == len(tokens[name])
        assert all(want == got or want.startswith("{") for want, got in zip(tokens[name], actual, strict=True))
    for channel in document["channels"].values():
        assert set(channel["parameters"]) == set(re.findall(r"{(\w+)}", channel["address"]))
    for operation in document["operations"].values():
        assert operation["channel"]["$ref"].rsplit("/", 1)[1] in document["channels"]


@pytest.mark.parametrize("kind", ["changes", "state"])
def test_a_stream_holds_what_the_design_asks_for(kind: str) -> None:
    config = definition(kind, "s1")
    assert (config["name"], config["subjects"]) == (f"atoll-{kind}-s1", [f"atoll.{kind}.s1.>"])
    assert config["duplicate_window"] >= 120 * 10**9
    assert config["allow_msg_ttl"]
    assert config["discard"] == "old"
    assert (config["max_msgs_per_subject"], config["max_age"]) == ((-1, 7200 * 10**9) if kind == "changes" else (1, 0))
