"""Whether the events of a stream are its shard's: signed with a trusted key, each for its place in the stream.

The state consumer and `atoll.events` check each event with one of these. Invariant: without keys to trust nothing is
believed; only where a reader has no keys at all (`keys` None) nothing is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from atoll.machinery.meta.objects import Object
from atoll.machinery.stream.events import Event
from atoll.machinery.stream.signatures import SignatureState, VerifiedRoots, verify

log = structlog.get_logger()

#: Return the public keys of the shard as they are known now, by their ids.
TrustedKeys = Callable[[], Mapping[str, str]]
_MAX_UNKNOWN = 64


def ignore(_: str) -> None:
    """Count nothing."""


def is_sourced(info: Object) -> bool:
    """Whether a stream takes its messages from others, so that its sequences are not those that were signed."""
    config = info["config"]
    return bool(config.get("sources") or config.get("mirror"))


class OriginCheck:
    """The check of one stream. `refused` is called with the reason for each event that is not believed."""

    def __init__(self, stream: str, keys: TrustedKeys | None, refused: Callable[[str], None] = ignore) -> None:
        self._stream, self._keys, self._refused = stream, keys, refused
        self._roots = VerifiedRoots()
        self._unknown: set[str] = set()
        self._count = 0
        self._last = (0, 0)
        self._sourced = False

    def begin(self, *, sourced: bool, filling: int = 0, signed: int = 0) -> None:
        """A reading begins, behind the event of this filling and signed sequence. A stream that sources another has
        sequences of its own: there the signed ones must rise."""
        self._sourced, self._last = sourced, (filling, signed)

    @property
    def signed(self) -> int:
        """The signed sequence of the event believed last."""
        return self._last[1]

    @property
    def lacks_keys(self) -> bool:
        """Whether events were refused as nobody knew their key."""
        return bool(self._unknown)

    def learned(self) -> bool:
        """Whether a key is known now with which events were signed that were refused."""
        if self._keys is None or not self._unknown:
            return False
        known = self._unknown.intersection(self._keys())
        self._unknown -= known
        return bool(known)

    def believes(self, event: Event, sequence: int) -> bool:
        """Whether the shard sent this event at this sequence."""
        if self._keys is None:
            return True
        state = verify(self._keys(), event, event.signature, self._roots)
        if state is not SignatureState.GENUINE:
            if event.signature is not None and state is SignatureState.UNKNOWN and len(self._unknown) < _MAX_UNKNOWN:
                self._unknown.add(event.signature.key)
            return self._refuse(state.value)
        assert event.signature is not None, "genuine"
        place = event.filling, event.signature.sequence
        if place <= self._last if self._sourced else place[1] != sequence:
            return self._refuse("replayed")
        self._last = place
        return True

    def _refuse(self, reason: str) -> bool:
        self._refused(reason)
        self._count += 1
        # At powers of two: who can write here can write often.
        if not self._count & (self._count - 1):
            log.error("event not of its shard", stream=self._stream, reason=reason, refused=self._count)
        return False
