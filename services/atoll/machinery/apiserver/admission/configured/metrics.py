"""Metrics of configured admission, with Kubernetes' names: how long each step took, and each of its controllers.

`configured_admission` times what it does. A plan that is made again goes on with the time of the first, so that waiting
for webhooks counts; only writes on which something configured acts are observed. Invariant: what is observed, here and
by policies, is counted once for each attempt, as the last planning observed it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from types import TracebackType

import msgspec
from prometheus_client import CollectorRegistry, Histogram

from atoll.machinery.apiserver.admission.chain import Review
from atoll.machinery.meta.status import ApiError

ADMIT, VALIDATE = "admit", "validate"
_PREFIX = "apiserver_admission"
#: Kubernetes' buckets, in seconds.
_BUCKETS = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5)
_LABELS = ("type", "operation", "rejected")


class _Span(msgspec.Struct):
    """One step, or one controller in it."""

    began_s: float
    elapsed_s: float = -1.0
    rejected: bool = False

    def end(self) -> None:
        """Note the first end: later ones are of plans that were made again."""
        if self.elapsed_s < 0:
            self.elapsed_s = time.monotonic() - self.began_s


def observed(review: Review) -> dict[Hashable, _Span | Callable[[], None]]:
    """Return what is to be counted at the end of an attempt: times, and functions that count."""
    attempt = review.call.attempt
    return review.observed if attempt is None else attempt.observed


class AdmissionMetrics:
    """The times of one process."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = registry or CollectorRegistry()
        self._steps = Histogram(
            f"{_PREFIX}_step_admission_duration_seconds",
            "How long steps of admission took where policies or webhooks act.",
            _LABELS,
            buckets=_BUCKETS,
            registry=registry,
        )
        self._controllers = Histogram(
            f"{_PREFIX}_controller_admission_duration_seconds",
            "How long admission controllers of policies and webhooks took.",
            ("name", *_LABELS),
            buckets=_BUCKETS,
            registry=registry,
        )
        #: By controller and labels: there are few.
        self._children: dict[tuple[str, ...], Histogram] = {}

    def timed(self, review: Review, step: str, controller: str = "") -> _Timed:
        """Time a step of a review, or a controller in it. Its last step, and one that rejects, count them all."""
        return _Timed(self, review, step, controller)

    def count(self, review: Review) -> None:
        """Count what was observed, unless that is done, or the write is in a batch that is planned again."""
        attempt = review.call.attempt
        if attempt is not None:
            is_postponed = attempt.postponed is not None and attempt.postponed.lacking
            if is_postponed or attempt.is_counted:
                return
            attempt.is_counted = True
        for key, found in observed(review).items():
            if not isinstance(found, _Span):
                found()
            elif found.elapsed_s >= 0:
                assert isinstance(key, tuple)
                self._count_span(review.operation, key, found)

    def _count_span(self, operation: str, key: tuple[str, str], span: _Span) -> None:
        step, controller = key
        labels = controller, step, operation.upper(), str(span.rejected).lower()
        found = self._children.get(labels)
        if found is None:
            found = self._controllers.labels(*labels) if controller else self._steps.labels(*labels[1:])
            self._children[labels] = found
        found.observe(span.elapsed_s)


class _Timed:
    """The context of one step, or of one controller in it."""

    __slots__ = ("_controller", "_metrics", "_review", "_span", "_step")

    def __init__(self, metrics: AdmissionMetrics, review: Review, step: str, controller: str) -> None:
        self._metrics, self._review, self._step, self._controller = metrics, review, step, controller
        span = observed(review).setdefault((step, controller), _Span(time.monotonic()))
        assert isinstance(span, _Span)
        self._span = span

    def __enter__(self) -> None:
        """The time goes on that the first planning began."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, ApiError):
            return
        self._span.rejected |= error is not None
        self._span.end()
        if not self._controller and (error is not None or self._step == VALIDATE):
            self._metrics.count(self._review)
