"""Malformed protobuf bodies, and edge cases of the wire format."""

import base64
import contextlib
import struct
from pathlib import Path

import msgspec
import pytest

from atoll.machinery.kinds.protobuf import MAGIC, DecodeProtobufError, decode
from atoll.machinery.kinds.protobuf_wire import MAX_DEPTH

GOLDEN = Path(__file__).parents[3] / "contract" / "kinds" / "golden" / "protobuf.json"


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    data = b""
    while value > 0x7F:
        data += bytes([value & 0x7F | 0x80])
        value >>= 7
    return data + bytes([value])


def field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def body(kind: str, *raw: bytes, api_version: str = "v1", encoding: str = "", content_type: str = "") -> bytes:
    meta = field(1, api_version) + field(2, kind)
    return MAGIC + field(1, meta) + field(2, b"".join(raw)) + field(3, encoding) + field(4, content_type)


def lease(*spec: bytes) -> bytes:
    return body("Lease", field(2, b"".join(spec)), api_version="coordination.k8s.io/v1")


def nested_schema(depth: int) -> bytes:
    schema = field(5, "string")
    for _ in range(depth):
        schema = field(28, schema)  # the field `not`
    version = field(4, field(1, schema))
    return body("CustomResourceDefinition", field(2, field(7, version)), api_version="apiextensions.k8s.io/v1")


def test_delete_options_come_in_the_group_of_what_they_delete() -> None:
    for api_version in ("v1", "meta.k8s.io/v1", "apps/v1"):
        decoded = decode(body("DeleteOptions", field(1, 0), field(4, "Orphan"), api_version=api_version))
        assert decoded == {
            "apiVersion": api_version,
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "propagationPolicy": "Orphan",
        }


def test_the_later_of_two_scalars_counts_and_messages_merge() -> None:
    first, second = field(1, "a") + field(2, 1), field(1, "b") + field(5, 7)
    obj = decode(body("Lease", field(2, first), field(2, second), api_version="coordination.k8s.io/v1"))
    assert obj["spec"] == {"holderIdentity": "b", "leaseDurationSeconds": 1, "leaseTransitions": 7}


def test_a_later_zero_takes_an_omitted_field_back() -> None:
    assert "name" not in decode(body("ConfigMap", field(1, field(1, "a") + field(1, ""))))["metadata"]


def test_a_later_entry_of_a_map_replaces_an_earlier_one() -> None:
    entries = [field(2, field(1, "k") + field(2, value)) for value in ("a", "b")]
    assert decode(body("ConfigMap", *entries))["data"] == {"k": "b"}


def test_missing_parts_of_a_map_entry_are_empty() -> None:
    assert decode(body("ConfigMap", field(2, b""), field(3, field(1, "x"))))["data"] == {"": ""}
    assert decode(body("ConfigMap", field(3, field(1, "x"))))["binaryData"] == {"x": ""}


def test_negative_numbers_take_ten_bytes() -> None:
    assert decode(lease(field(2, -5)))["spec"] == {"leaseDurationSeconds": -5}


def test_unknown_fields_are_skipped_in_every_wire_type() -> None:
    fixed = varint(99 << 3 | 1) + bytes(8) + varint(98 << 3 | 5) + bytes(4)
    group = varint(97 << 3 | 3) + field(1, "in") + varint(96 << 3 | 3) + varint(96 << 3 | 4) + varint(97 << 3 | 4)
    obj = decode(body("ConfigMap", field(95, 1), field(94, "x"), fixed, group, field(4, 1)))
    assert obj == {"apiVersion": "v1", "kind": "ConfigMap", "immutable": True}


def test_the_magic_number_is_looked_at() -> None:
    with pytest.raises(DecodeProtobufError, match="magic"):
        decode(b"k9s\0" + body("ConfigMap")[4:])


def test_groups_within_groups_are_bounded() -> None:
    opened, closed = varint(9 << 3 | 3), varint(9 << 3 | 4)
    assert decode(body("ConfigMap", opened * MAX_DEPTH + closed * MAX_DEPTH))["kind"] == "ConfigMap"
    with pytest.raises(DecodeProtobufError, match="groups nest too deep"):
        decode(body("ConfigMap", opened * (MAX_DEPTH + 1) + closed * (MAX_DEPTH + 1)))


def test_a_fixed_field_does_not_reach_beyond_its_message() -> None:
    cut = varint(99 << 3 | 1) + bytes(4)
    with pytest.raises(DecodeProtobufError, match="unexpected end"):
        decode(body("ConfigMap", field(1, cut), field(95, "something behind it")))


def test_moments_are_written_in_utc_and_the_zero_time_is_absent() -> None:
    stamp = field(1, 1767323045) + field(2, 123456789)
    obj = decode(lease(field(3, stamp), field(4, b"")))
    assert obj["spec"] == {"acquireTime": "2026-01-02T03:04:05.123456Z"}
    obj = decode(body("ConfigMap", field(1, field(8, stamp))))
    assert obj["metadata"] == {"creationTimestamp": "2026-01-02T03:04:05Z"}
    obj = decode(lease(field(3, field(1, 0) + field(2, 0))))
    assert obj["spec"] == {"acquireTime": "1970-01-01T00:00:00.000000Z"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"k8s",
        b"{}",
        MAGIC,
        body("ConfigMap")[:-3],
        body("Rod"),
        body("ConfigMap", api_version="v2"),
        body("ConfigMap", encoding="gzip"),
        body("ConfigMap", content_type="application/json"),
        MAGIC + field(1, 5),
        body("ConfigMap", b"\xff" * 11),
        body("ConfigMap", b"\x80"),
        body("ConfigMap", varint(0 << 3 | 2) + b"\0"),
        body("ConfigMap", varint(9 << 3 | 7)),
        body("ConfigMap", varint(9 << 3 | 4)),
        body("ConfigMap", varint(9 << 3 | 3)),
        body("ConfigMap", varint(9 << 3 | 3) + varint(8 << 3 | 4)),
        body("ConfigMap", varint(9 << 3 | 3) * (MAX_DEPTH + 1)),
        body("ConfigMap", varint(1 << 3 | 2) + varint(2**40)),
        body("ConfigMap", field(1, 1)),
        body("ConfigMap", field(4, "x")),
        body("ConfigMap", field(1, field(1, 5))),
        body("ConfigMap", field(1, field(1, b"\xff"))),
        body("ConfigMap", varint(1 << 3 | 5) + bytes(4)),
        lease(field(3, field(1, 2**62))),
        lease(field(3, field(2, -1))),
        body("ConfigMap", field(1, field(17, field(7, field(1, "{"))))),
        nested_schema(MAX_DEPTH),
    ],
)
def test_a_malformed_body_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeProtobufError):
        decode(data)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_json_cannot_say_are_refused(number: float) -> None:
    schema = varint(9 << 3 | 1) + struct.pack("<d", number)
    data = body(
        "CustomResourceDefinition",
        field(2, field(7, field(4, field(1, schema)))),
        api_version="apiextensions.k8s.io/v1",
    )
    with pytest.raises(DecodeProtobufError, match="infinite"):
        decode(data)


def test_a_schema_may_nest_as_deep_as_anybody_writes_one() -> None:
    obj = decode(nested_schema(60))
    schema = obj["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for _ in range(60):
        schema = schema["not"]
    assert schema == {"type": "string"}


def test_every_beginning_of_a_body_is_an_object_or_an_error() -> None:
    cases = msgspec.json.decode(GOLDEN.read_bytes(), type=list[dict[str, object]])
    for case in cases[::3]:
        data = base64.b64decode(str(case["protobuf"]))
        for size in range(0, len(data), 7):
            with contextlib.suppress(DecodeProtobufError):
                assert isinstance(decode(data[:size]), dict)


@pytest.mark.long
def test_a_flipped_byte_is_an_object_or_an_error() -> None:
    cases = msgspec.json.decode(GOLDEN.read_bytes(), type=list[dict[str, object]])
    for case in cases[::3]:
        data = bytearray(base64.b64decode(str(case["protobuf"])))
        for at in range(4, len(data), 11):
            data[at] ^= 0x55
            with contextlib.suppress(DecodeProtobufError):
                assert isinstance(decode(bytes(data)), dict)
            data[at] ^= 0x55
