"""Policies that take too long for the loop, on a write in a batch: they are evaluated beside it before the batch lands.

A batch is filled within one loop turn and cannot be planned in slices. So the write is planned as if the policies
accepted it, and the batch is planned again once their report is at hand. Invariant: a report is used only for a write
of the same content under the same policies, in the same batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Sequence

from atoll.machinery.apiserver.admission.configured.matching import Request
from atoll.machinery.apiserver.admission.policies.policy import BoundPolicy
from atoll.machinery.apiserver.admission.policies.report import Report
from atoll.machinery.apiserver.call.attempt import Attempt
from atoll.machinery.meta.missing_answer import MissingAnswer
from atoll.machinery.meta.objects import encode_json
from atoll.machinery.process.time_slicing import run_sliced

#: Time limit of the policies of one write of a batch, including the wait for a slot.
TIMEOUT_S = 34.0


class _MissingReport(MissingAnswer):
    """The report of policies that take too long for the loop."""

    def __init__(self, attempt: Attempt, key: Hashable, evaluate: Callable[[], Report]) -> None:
        super().__init__("policies")
        self._attempt, self._key, self._evaluate = attempt, key, evaluate

    async def fetch(self) -> None:
        """Evaluate beside the loop. Raises TimeoutError."""
        report = await run_sliced(lambda pause: self._evaluate(), TIMEOUT_S, is_long=True)
        self._attempt.answers[self._key] = report


def report_of_batch(
    attempt: Attempt, request: Request, policies: Sequence[BoundPolicy], evaluate: Callable[[], Report]
) -> Report | None:
    """Return the report that was made for a write; None if it is to be made before the batch lands."""
    assert attempt.postponed is not None
    key = _key(request, policies)
    found: Report | None = attempt.answers.get(key)
    if found is None:
        attempt.postponed.append(_MissingReport(attempt, key, evaluate))
    return found


def _key(request: Request, policies: Sequence[BoundPolicy]) -> Hashable:
    content = hashlib.blake2b(encode_json([request.obj, request.old]), digest_size=16).digest()
    acting = tuple((each.cluster, each.policy.name, each.policy.content) for each in policies)
    return request.operation, request.subresource, content, acting
