"""What a syncer could not do: when to try again, and the rows of SyncerConfig.status.errors.

A syncer keeps one `Failure` an object, and `plan` leaves the object alone until it is due. Invariant: a new desired
version is tried at once, so an object waits only for what failed; rows are at most MAX_ROWS, the newest.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import REASONS, ApiError

#: Answers that say nothing about the object. 500 is none of them: a webhook that fails, or an object that is too large
#: for the store behind the server, is answered so.
UNAVAILABLE_CODES = (401, 429, 503, 504)
MAX_ROWS, MAX_MESSAGE = 50, 256
_FIRST_S, _LONGEST_S = 1.0, 300.0
CONTESTED = "Contested"
#: Reasons of failures that are none of the API's.
_OWN_REASONS = frozenset(
    {
        CONTESTED,
        "KeptByOther",
        "Missing",
        "NameTaken",
        "NamesNotAccepted",
        "NotEstablished",
        "NotObserved",
        "NotServed",
        "Terminating",
        "TooMany",
    }
)


class Failure(msgspec.Struct, frozen=True):
    """The last of `count` failures in a row. `attempt` is the digest of what was written, empty for a deletion."""

    operation: str
    reason: str
    message: str
    attempt: str
    count: int
    at_s: float

    def is_due(self, ref: ObjectRef, attempt: str, now_s: float) -> bool:
        """Whether to try now. A clock that was set back does not make anything wait longer than the longest delay."""
        return attempt != self.attempt or not 0 <= now_s - self.at_s < self.delay_s(ref)

    def delay_s(self, ref: ObjectRef) -> float:
        """Seconds from this failure to the next attempt."""
        # Objects that fail together do not come back together.
        share = zlib.crc32("/".join((ref.group, ref.resource, ref.namespace, ref.name)).encode()) / 2**32
        return min(_FIRST_S * 2.0 ** min(self.count - 1, 30), _LONGEST_S) * (0.75 + share / 4)


def refused(operation: str, error: ApiError, attempt: str = "") -> Failure:
    """Return the failure that an answer is."""
    return Failure(operation, error.reason or str(error.code), error.message, attempt, 1, time.time())


def next_failure(before: Failure | None, error: Failure) -> Failure:
    """Return what is kept after one more failure; `error` counts from one. Another reason begins anew."""
    is_same = before is not None and (before.operation, before.reason) == (error.operation, error.reason)
    return msgspec.structs.replace(error, count=before.count + 1) if before is not None and is_same else error


def metric_reason(reason: str) -> str:
    """Return a reason as a label of a metric: a webhook may answer any, so one that is not known is `Other`."""
    return reason if reason in _OWN_REASONS or reason in REASONS else "Other"


def error_rows(failures: Mapping[ObjectRef, Failure]) -> list[Object]:
    """Return `status.errors`: the newest failures, by time and name."""
    newest = sorted(failures.items(), key=lambda row: (-row[1].at_s, row[0]))[:MAX_ROWS]
    return [
        {
            "group": ref.group,
            "resource": ref.resource,
            "namespace": ref.namespace,
            "name": ref.name,
            "operation": each.operation,
            "reason": each.reason,
            "message": each.message[:MAX_MESSAGE],
            "time": datetime.fromtimestamp(each.at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "count": each.count,
        }
        for ref, each in newest
    ]
