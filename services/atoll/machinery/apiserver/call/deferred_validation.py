"""Checks that may take long, in the middle of a plan: rules of custom kinds, compilation of a definition's rules.

`rest.write` judges every object through here. Nearly all verdicts take microseconds and come at once. One that does
not stops the planning: `core` lets it run beside the event loop, up to a deadline, and the plan goes on from where it
stopped, against a fresh snapshot. Invariant: planning never holds the loop, nor a snapshot, for longer than INLINE_S
because of a rule.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from atoll.machinery.apiserver.call.call import Plan, View
from atoll.machinery.kinds.kind import Verdict

#: How long a verdict may take inside of planning.
INLINE_S = 0.004

Pause = Callable[[], None]
Work = Callable[[Pause], Verdict]


class _Late(Exception):
    """Judging took longer than INLINE_S."""


class ValidationDeferred(Exception):
    """A plan waits for a verdict. `work` gives it and may be run again; `resume` makes the plan of it."""

    def __init__(self, work: Work, resume: Callable[[Verdict, View], Plan]) -> None:
        super().__init__("judging takes long")
        self.work, self.resume = work, resume

    def then(self, change: Callable[[Plan], Plan]) -> ValidationDeferred:
        """The same with something done to the plan."""
        resume = self.resume
        return ValidationDeferred(self.work, lambda verdict, view: change(resume(verdict, view)))


def validated(work: Work | Verdict, finish: Callable[[Verdict, View], Plan], view: View) -> Plan:
    """Finish a plan by a verdict. Raises ValidationDeferred if that does not come at once."""
    if isinstance(work, Verdict):
        return finish(work, view)
    end_s = time.monotonic() + INLINE_S

    def pause() -> None:
        if time.monotonic() > end_s:
            raise _Late

    try:
        verdict = work(pause)
    except _Late:
        raise ValidationDeferred(work, finish) from None
    return finish(verdict, view)


def finished(slow: ValidationDeferred, view: View) -> Plan:
    """Finish a plan whatever time it takes: for the system's own batches, which never leave the loop."""
    return slow.resume(slow.work(lambda: None), view)
