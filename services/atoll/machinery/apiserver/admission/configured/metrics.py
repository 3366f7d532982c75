"""Metrics of configured admission, with Kubernetes' names: how long each step took, and each of its controllers.

`configured_admission` times what it does. A plan that is made again goes on with the time of the first, so that waiting
for webhooks counts; only writes on which something configured acts are observed, once for each attempt.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

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

    @contextmanager
    def timed(self, review: Review, step: str, controller: str = "") -> Iterator[None]:
        """Time a step of a review, or a controller in it. Its last step, and one that rejects, observe them all."""
        attempt = review.call.attempt
        spans: dict[tuple[str, str], _Span] = review.spans if attempt is None else attempt.spans
        span = spans.setdefault((step, controller), _Span(time.monotonic()))
        try:
            yield
        except ApiError:
            span.rejected = True
            span.end()
            if not controller:
                self._observe(review.operation, spans)
            raise
        span.end()
        if step == VALIDATE and not controller:
            self._observe(review.operation, spans)

    def _observe(self, operation: str, spans: dict[tuple[str, str], _Span]) -> None:
        for (step, controller), span in spans.items():
            if span.elapsed_s < 0:
                continue
            labels = step, operation.upper(), str(span.rejected).lower()
            found = self._controllers.labels(controller, *labels) if controller else self._steps.labels(*labels)
            found.observe(span.elapsed_s)
        spans.clear()
