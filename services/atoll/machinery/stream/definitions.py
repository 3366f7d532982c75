"""The two streams of a shard as JetStream configuration, read from `schemas/streams/`.

The publisher creates the streams from these and repairs a stream that differs. Invariant: the running configuration is
that of the files; an operator can change only the retention limits of the changes stream, and the number of copies.
"""

from __future__ import annotations

import msgspec

from atoll.machinery.meta.objects import Object
from atoll.machinery.process.resources import schema_path
from atoll.machinery.stream import subjects

#: How long a tombstone stays in the state stream. A mark older than this must be followed by a full reread.
TOMBSTONE_TTL_S = 7 * 24 * 3600
#: Objects end at 3 MiB; this leaves room for headers and for the base64 of a sealed record.
MAX_PAYLOAD_BYTES = 8 << 20


class RetentionLimits(msgspec.Struct, frozen=True):
    """What an operator may set: limits of the changes stream, and how many servers of a cluster have a copy of each of
    both streams. None keeps that of the definition, or the number of copies that there is."""

    max_age_s: float | None = None
    max_bytes: int | None = None
    replicas: int | None = None


#: Numbers of copies: one that does not change the majority only costs.
REPLICAS = (1, 3, 5)
AS_DEFINED = RetentionLimits()


def definition(kind: str, shard: str, bounds: RetentionLimits = AS_DEFINED) -> Object:
    """The configuration of one stream of a shard. Raises ValueError for a name that is no DNS label."""
    subjects.check_shard(shard)
    text = schema_path("streams", f"{kind}.json").read_text().replace("{shard}", shard)
    config: Object = msgspec.json.decode(text)
    if bounds.replicas is not None:
        config["num_replicas"] = bounds.replicas
    if kind == subjects.CHANGES and bounds.max_age_s is not None:
        config["max_age"] = int(bounds.max_age_s * 1e9)
        config["duplicate_window"] = min(config["duplicate_window"], config["max_age"])
    if kind == subjects.CHANGES and bounds.max_bytes is not None:
        config["max_bytes"] = bounds.max_bytes
    return config


def differences(wanted: Object, actual: Object) -> dict[str, tuple[object, object]]:
    """The members of a stream's configuration that differ from the definition: name → (actual, wanted)."""
    # The server omits members with a zero value from its answers.
    return {
        name: (actual.get(name), value)
        for name, value in wanted.items()
        if actual.get(name) != value and not (name not in actual and not value)
    }
