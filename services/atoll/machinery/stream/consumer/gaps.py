"""Why a consumer cannot go on from its position and must read everything again.

Both consumers report one of these: `state_consumer` to its replica, `atoll.events` to its caller.
"""

from __future__ import annotations

import enum


class Gap(enum.StrEnum):
    """The reasons, as logs show them."""

    NEW = "there is no position yet"
    STREAM = "the stream was created again"
    REWOUND = "the stream ends before the position"
    TRIMMED = "the stream begins after the position"
    REWRITTEN = "the message at the position is a different one"
    LINEAGE = "the shard lost acknowledged history"
    RESYNC = "the shard published a RESYNC"
    MISSING = "an earlier change on the same subject is missing"
    SKIPPED = "the stream skipped a sequence"
    DAMAGED = "a payload fails its checksum"
    KEYS = "events were signed with a key that was not known yet"
    STALE = "the position is older than the tombstones"
