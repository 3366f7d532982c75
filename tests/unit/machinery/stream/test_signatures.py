"""One signature over a run of events: each event of the run is verified alone, and every other event fails."""

from __future__ import annotations

import base64

import msgspec
import pytest

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.process.ed25519 import SecretKey
from atoll.machinery.stream import signatures
from atoll.machinery.stream.events import Event, Malformed, decode
from atoll.machinery.stream.publisher.log_events import from_entry
from atoll.machinery.stream.signatures import SignatureState, VerifiedRoots, sign, verify
from harness.data.stored_headers import encode_headers
from harness.models.shard_log import CONFIGMAPS, ShardLog

KEY = SecretKey(base64.b64encode(bytes(32)).decode())
OTHER = SecretKey(base64.b64encode(b"\x01" * 32).decode())
TRUSTED = {KEY.id: KEY.public}


def signed(count: int, first: int = 100, key: SecretKey = KEY) -> list[Event]:
    log = ShardLog()
    found = [
        from_entry("changes", log.identity, log.put(ObjectKey(CONFIGMAPS, "c1", "default", f"m{number}")))
        for number in range(count)
    ]
    return [
        msgspec.structs.replace(event, signature=signature)
        for event, signature in zip(found, sign(key, found, first), strict=True)
    ]


def state_of(event: Event) -> SignatureState:
    return verify(TRUSTED, event, event.signature, VerifiedRoots())


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 17, 31, 32])
def test_each_event_of_a_run_is_verified_alone_by_its_headers(count: int) -> None:
    for number, event in enumerate(signed(count)):
        read = decode(event.subject, encode_headers(event), event.payload)
        assert read == event
        assert read.signature is not None
        assert (read.signature.sequence, state_of(read)) == (100 + number, SignatureState.GENUINE)


@pytest.mark.parametrize(
    "change",
    [
        {"payload": b"{}"},
        {"epoch": 9_999_999_999},
        {"revision": 7},
        {"previous": 7},
        {"lineage": "other"},
        {"shard_uid": "other"},
        {"shard": "east"},
        {"kind": "state"},
        {"crc": 7},
        {"hole": 3},
        {"filling": 7},
        {"sealed": True},
        {"key": ObjectKey(CONFIGMAPS, "c1", "default", "another")},
        {"key": ObjectKey(CONFIGMAPS, "c2", "default", "m0")},
    ],
    ids=lambda change: str(next(iter(change))),
)
@pytest.mark.parametrize("count", [1, 8])
def test_a_part_that_was_changed_is_not_believed(change: dict[str, object], count: int) -> None:
    for event in signed(count):
        assert state_of(msgspec.structs.replace(event, **change)) is SignatureState.FORGED


def test_another_sequence_another_signature_and_another_path_are_not_believed() -> None:
    first, second = signed(2)
    assert first.signature is not None
    assert second.signature is not None
    moved = msgspec.structs.replace(first.signature, sequence=101)
    for signature in (moved, second.signature, msgspec.structs.replace(first.signature, path=b"")):
        assert state_of(msgspec.structs.replace(first, signature=signature)) is SignatureState.FORGED


def test_a_key_that_is_not_trusted_is_unknown_and_no_signature_is_unsigned() -> None:
    (event,) = signed(1, key=OTHER)
    assert state_of(event) is SignatureState.UNKNOWN
    assert state_of(msgspec.structs.replace(event, signature=None)) is SignatureState.UNSIGNED
    claimed = msgspec.structs.replace(event.signature, key=KEY.id)  # type: ignore[type-var]
    assert state_of(msgspec.structs.replace(event, signature=claimed)) is SignatureState.FORGED


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Atoll-Signature", "%"),
        ("Atoll-Path", "AAAA"),
        ("Atoll-Path", base64.b64encode(b"\x02" + bytes(32)).decode()),
        ("Atoll-Path", base64.b64encode(bytes(33 * 17)).decode()),
        ("Atoll-Sequence", "x"),
    ],
)
def test_malformed_headers_of_a_signature_are_no_event(name: str, value: str) -> None:
    (event,) = signed(1)
    with pytest.raises(Malformed):
        decode(event.subject, {**encode_headers(event), name: value}, event.payload)


def test_a_signature_is_verified_once_for_a_run() -> None:
    events, roots = signed(32), VerifiedRoots()
    assert {verify(TRUSTED, event, event.signature, roots) for event in events} == {SignatureState.GENUINE}
    assert len(roots) == 1


def test_as_many_verified_roots_are_remembered_as_the_bound_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signatures, "_ROOTS", 2)
    roots = VerifiedRoots()
    for count in (1, 2, 3, 4):
        for event in signed(count):
            assert verify(TRUSTED, event, event.signature, roots) is SignatureState.GENUINE
    assert len(roots) == 2
