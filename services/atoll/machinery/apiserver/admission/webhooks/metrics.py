"""Metrics of admission webhooks, with Kubernetes' names and label values.

`caller` observes each call. Labels are bounded: beyond MAX_NAMES names of webhooks, all others share one series.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from atoll.machinery.apiserver.admission.configured.questions import Question

MAX_NAMES, OTHER = 200, "other"
#: Values of `error_type`.
NO_ERROR, CALLING, INTERNAL = "no_error", "calling_webhook_error", "apiserver_internal_error"
#: Kubernetes' buckets, in seconds.
_BUCKETS = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10, 25)
_MAX_CODE = 600
_PREFIX = "apiserver_admission_webhook"
_LABELS = ("name", "type", "operation")


class WebhookMetrics:
    """The metrics of the calls of one process."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = registry or CollectorRegistry()
        self._requests = Counter(
            f"{_PREFIX}_request_total", "Calls of webhooks.", (*_LABELS, "code", "rejected"), registry=registry
        )
        self._times = Histogram(
            f"{_PREFIX}_admission_duration_seconds",
            "How long calls of webhooks took.",
            (*_LABELS, "rejected"),
            buckets=_BUCKETS,
            registry=registry,
        )
        self._rejections = Counter(
            f"{_PREFIX}_rejection_count",
            "Requests that webhooks, or failed calls of them, rejected.",
            (*_LABELS, "error_type", "rejection_code"),
            registry=registry,
        )
        self._fail_open = Counter(
            f"{_PREFIX}_fail_open_count", "Failed calls that were ignored.", ("name", "type"), registry=registry
        )
        self._names: set[str] = set()
        #: By name, type, operation, code and rejection, which are bounded: finding a child takes longer than counting.
        self._children: dict[tuple[str, str, str, int, bool], tuple[Histogram, Counter]] = {}

    def observe(self, question: Question, code: int, elapsed_s: float, *, rejected: bool) -> None:
        """Count a call that ended with a status; 0 for an error of this server."""
        key = *self._labels(question), min(code, _MAX_CODE), rejected
        found = self._children.get(key)
        if found is None:
            *labels, status, _ = key
            said = str(rejected).lower()
            found = self._times.labels(*labels, said), self._requests.labels(*labels, str(status), said)
            self._children[key] = found
        times, requests = found
        times.observe(elapsed_s)
        requests.inc()

    def rejected(self, question: Question, error: str, code: int) -> None:
        """Count a rejection; `error` is one of NO_ERROR, CALLING, INTERNAL."""
        self._rejections.labels(*self._labels(question), error, str(min(code, _MAX_CODE))).inc()

    def failed_open(self, question: Question) -> None:
        """Count a failed call that was ignored."""
        self._fail_open.labels(*self._labels(question)[:2]).inc()

    def _labels(self, question: Question) -> tuple[str, str, str]:
        name = question.webhook.name
        if name not in self._names:
            if len(self._names) >= MAX_NAMES:
                name = OTHER
            else:
                self._names.add(name)
        return name, "admit" if question.webhook.mutating else "validating", question.request.operation
