"""The keys that the events of each followed shard are verified with: configured ones, renewed by Shard objects.

The follower keeps one. A process begins with the keys of its credential file; a Shard object, which root signed, then
counts before them, so that a shard can change its key while a process runs. Invariant: the chain begins at the file. A
Shard object counts if it names a key of the file, or did so before its shard went on to others; once the file has other
keys, it counts for nothing until it names one of those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from atoll.machinery.kcp.sharding.shards import EVENT_KEYS
from atoll.machinery.meta import partial
from atoll.machinery.stream.event_keys import by_id

#: The mark with the configured keys that Shard objects were last seen to name.
KEYS_MARK = "replication.event-keys"
_annotated = msgspec.json.Decoder(partial.Partial[partial.Annotations]).decode


class ShardKeys:
    """`announce` what Shard objects say, and store `state` as a mark when it has changed."""

    def __init__(self, configured: Mapping[str, Sequence[str]], state: bytes | None) -> None:
        self._configured = {shard: by_id(keys) for shard, keys in configured.items()}
        self._named: dict[str, list[str]] = msgspec.json.decode(state, type=dict[str, list[str]]) if state else {}
        self._announced: dict[str, Mapping[str, str]] = {}

    @property
    def state(self) -> bytes:
        """What has to outlive the process."""
        return msgspec.json.encode(self._named)

    def announce(self, found: Mapping[str, Sequence[str]]) -> None:
        """Take the keys in the Shard objects that there are now, by shard."""
        self._announced = {shard: by_id(keys) for shard, keys in found.items()}
        for shard, keys in self._announced.items():
            configured = self._configured.get(shard, {})
            if configured.keys() & keys.keys():
                self._named[shard] = sorted(configured)

    def of(self, shard: str) -> Mapping[str, str]:
        """The keys of a shard, by their ids: none where no file begins the chain."""
        if not self._configured:
            return {}
        configured, announced = self._configured.get(shard, {}), self._announced.get(shard, {})
        if not announced:
            return configured
        followed = not configured or self._named.get(shard) == sorted(configured)
        return announced if followed else configured


def announced_keys(shard: bytes) -> list[str]:
    """The public keys that a Shard object names, in its JSON."""
    try:
        text = _annotated(shard).metadata.annotations.get(EVENT_KEYS, "")
    except msgspec.DecodeError:
        return []
    return text.split(",") if text else []
