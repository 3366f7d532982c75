"""What the plannings of one attempt of a write share.

`writing.commit` makes an Attempt for each attempt to write. A plan that lacks an answer goes on with it where it
stopped, or is made again: a new object then has the same uid and generated name as before, so that a question about it
is the same question. After a conflict with another writer everything is asked anew, as in Kubernetes. Invariant: what
users wrote to be evaluated (rules, policies, conditions) holds the loop for LOOP_S at most, for one request as for all
writes of a batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import msgspec

from atoll.machinery.meta.missing_answer import MissingAnswer
from atoll.machinery.meta.uids import new_uid
from atoll.machinery.process.time_slicing import Stopped, slice_pause, within_limit

#: Time limit on the loop, compilation included.
LOOP_S = 0.01

T = TypeVar("T")


class TakesLong(MissingAnswer):
    """A batch takes too long for the loop: nobody is asked, and it is planned again in slices."""


class Postponed(msgspec.Struct):
    """What a batch lacks, and the seconds that are left of its time on the loop.

    It is planned as if all were accepted, and again with the answers.
    """

    lacking: list[MissingAnswer] = []
    left_s: float = LOOP_S

    @property
    def takes_long(self) -> bool:
        return any(isinstance(each, TakesLong) for each in self.lacking)


class Attempt(msgspec.Struct):
    """The identity of a new object, and the answers that were fetched, by the content of their questions."""

    #: Empty without one.
    uid: str = ""
    #: The generated name; empty without one.
    generated_name: str = ""
    answers: dict[Hashable, Any] = {}
    #: What a batch lacks; None outside of batches: the plan ends with what it lacks.
    postponed: Postponed | None = None
    #: The answer that a planning at once lacked: it is fetched before the write is planned again.
    lacking: MissingAnswer | None = None
    #: What is left of a planning that lacks an answer, in the view of then; None: the write is planned again.
    rest: Callable[[Any], Any] | None = None
    #: It takes too long for the loop, and is planned in slices.
    is_long: bool = False
    #: What admission said in the last planning: warnings and audit annotations.
    warnings: list[str] = []
    audit: dict[str, str] = {}
    #: What admission observed for the metrics in the last planning, and whether that is counted.
    observed: dict[Any, Any] = {}
    is_counted: bool = False

    def new_uid(self) -> str:
        """Return the uid of the new object."""
        self.uid = self.uid or new_uid()
        return self.uid


def evaluated(attempt: Attempt | None, work: Callable[[], T]) -> T | None:
    """Return the result of a part of a plan that may take long.

    Where it does, raises Stopped on the loop, so that the write is planned again in slices. A batch is filled in one
    loop turn: it returns None instead, and the batch is postponed.
    """
    postponed = attempt.postponed if attempt is not None else None
    if postponed is None or slice_pause() is not None:
        return within_limit(work, LOOP_S)
    start_s = time.monotonic()
    try:
        if postponed.left_s > 0:
            return within_limit(work, postponed.left_s)
    except Stopped:
        pass
    finally:
        postponed.left_s -= time.monotonic() - start_s
    if not postponed.takes_long:
        postponed.lacking.append(TakesLong())
    return None
