"""Signatures of events: who published a message, and at which place of which stream.

The publisher signs with these, every consumer verifies; `schemas/events/` describes the headers. One Ed25519 signature
costs more than an event may, so a run of messages shares one: it signs the root of a hash tree over them, and each
carries its path to the root. A message alone is verified, wherever a consumer begins and whatever is left of the run.
Invariant: all that a consumer believes of an event is in its statement, the sequence in the stream included. So no
message counts at another subject, in another stream, or a second time.
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from atoll.machinery.process import ed25519
from atoll.machinery.process.ed25519 import SecretKey

#: The most messages that share a signature: five hashes of a path and 1/32 of the signing each.
RUN = 32
#: Roots that were verified are remembered: a signature costs as much as a hundred hashes.
_ROOTS = 4096
_LEAF, _NODE, _ROOT = b"atoll.event.v1\n", b"\x01", b"atoll.events.v1\n"
_LEFT, _RIGHT = 0, 1
_SIDES = (b"\x00", b"\x01")
_STEP = 33
_MAX_STEPS = 16


class Signature(msgspec.Struct, frozen=True):
    """What proves one event: its sequence in the stream, the key's id, the signature of the root, the path to it."""

    sequence: int
    key: str
    value: bytes
    path: bytes = b""


class Statement(Protocol):
    """The parts of an event that are signed."""

    @property
    def statement(self) -> str:
        """All that a consumer believes of the event but its payload, on lines."""

    @property
    def payload(self) -> bytes: ...


class SignatureState(enum.Enum):
    """Whether an event is its shard's. UNKNOWN: a key signed it that is not among the trusted ones (yet)."""

    GENUINE = "genuine"
    UNSIGNED = "unsigned"
    FORGED = "forged"
    UNKNOWN = "unknown key"


def _leaf(event: Statement, sequence: int) -> bytes:
    payload = hashlib.sha256(event.payload).hexdigest()
    return hashlib.sha256(b"%s%d\n%s\n%s" % (_LEAF, sequence, payload.encode(), event.statement.encode())).digest()


def sign(key: SecretKey, events: Sequence[Statement], first: int) -> list[Signature]:
    """Sign events that take the sequences from `first` on; return the signature of each. At most `RUN` at a time."""
    levels = [[_leaf(event, first + index) for index, event in enumerate(events)]]
    while len(levels[-1]) > 1:
        below = levels[-1]
        pairs = zip(below[::2], below[1::2], strict=False)
        # A node without a neighbour goes up as it is.
        alone = below[-1:] if len(below) % 2 else []
        levels.append([hashlib.sha256(_NODE + left + right).digest() for left, right in pairs] + alone)
    value, paths = key.sign(_ROOT + levels[-1][0]), [b""]
    for level in reversed(levels[:-1]):
        # A node's neighbour, then the path of the node above both.
        steps = [_SIDES[at % 2] + node for at, node in enumerate(level)]
        steps.append(b"")
        paths = [steps[at ^ 1] + paths[at >> 1] for at in range(len(level))]
    return [Signature(first + index, key.id, value, path) for index, path in enumerate(paths)]


def _root(event: Statement, signature: Signature) -> bytes:
    found, path = _leaf(event, signature.sequence), signature.path
    for at in range(0, len(path), _STEP):
        other = path[at + 1 : at + _STEP]
        pair = other + found if path[at] == _LEFT else found + other
        found = hashlib.sha256(_NODE + pair).digest()
    return found


def verify(
    keys: Mapping[str, str], event: Statement, signature: Signature | None, roots: VerifiedRoots
) -> SignatureState:
    """Whether a trusted key signed the event. `keys` are public keys by their ids."""
    if signature is None:
        return SignatureState.UNSIGNED
    public = keys.get(signature.key)
    if public is None:
        return SignatureState.UNKNOWN
    root = _root(event, signature)
    return SignatureState.GENUINE if roots.verified(public, signature.value, root) else SignatureState.FORGED


class VerifiedRoots:
    """Roots whose signature was verified lately. One for each reader of a stream."""

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[str, bytes, bytes], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def verified(self, public: str, signature: bytes, root: bytes) -> bool:
        """Whether this key signed this root."""
        entry = public, signature, root
        if entry in self._entries:
            return True
        if not ed25519.verifies(public, signature, _ROOT + root):
            return False
        self._entries[entry] = None
        if len(self._entries) > _ROOTS:
            self._entries.popitem(last=False)
        return True


# --- headers ---------------------------------------------------------------------------------------------

SEQUENCE, KEY, SIGNATURE, PATH = "Atoll-Sequence", "Atoll-Key", "Atoll-Signature", "Atoll-Path"


def header_lines(signature: Signature) -> list[str]:
    """The headers of a signature, `<name>: <value>` each."""
    lines = [
        f"{SEQUENCE}: {signature.sequence}",
        f"{KEY}: {signature.key}",
        f"{SIGNATURE}: {binascii.b2a_base64(signature.value, newline=False).decode()}",
    ]
    if signature.path:
        lines.append(f"{PATH}: {binascii.b2a_base64(signature.path, newline=False).decode()}")
    return lines


def decode(headers: Mapping[str, str]) -> Signature | None:
    """The signature in headers; None if there is none. Raise ValueError for a malformed one."""
    value = headers.get(SIGNATURE)
    if value is None:
        return None
    try:
        path = base64.b64decode(headers.get(PATH, ""), validate=True)
        data = base64.b64decode(value, validate=True)
        sequence, key = int(headers[SEQUENCE]), headers[KEY]
    except (binascii.Error, KeyError) as error:
        raise ValueError(f"not a signature: {error}") from error
    steps = range(0, len(path), _STEP)
    if len(path) % _STEP or len(steps) > _MAX_STEPS or any(path[at] not in (_LEFT, _RIGHT) for at in steps):
        raise ValueError("not the path of a hash tree")
    return Signature(sequence, key, data, path)
