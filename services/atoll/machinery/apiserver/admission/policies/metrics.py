"""Metrics of admission policies, with Kubernetes' names: how often a check had an effect, and how long it took.

`report` observes checks that deny, warn, audit, or fail and are ignored; as in Kubernetes, checks that hold are not
observed. `mutating` observes each mutation; one without an error has the type no_error. Counted is what the last
planning of an attempt observed. Labels are bounded: beyond MAX_LABELS policies and bindings, all others share one
series.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram

from atoll.machinery.apiserver.admission.chain import Review
from atoll.machinery.apiserver.admission.configured.metrics import observed

MAX_LABELS = 200
OTHER = "other"
_LABELS = ("policy", "policy_binding", "error_type")
#: Kubernetes' buckets, in seconds.
_BUCKETS = (0.0000005, 0.001, 0.01, 0.1, 1.0)


class PolicyMetrics:
    """The metrics of the policies of one kind; `kind` is `validating` or `mutating`."""

    def __init__(self, registry: CollectorRegistry, kind: str) -> None:
        name, words = f"apiserver_{kind}_admission_policy_check", f"{kind} admission policies"
        labels = _LABELS if kind == "mutating" else (*_LABELS, "enforcement_action")
        self._total = Counter(f"{name}_total", f"Checks of {words} that had an effect.", labels, registry=registry)
        self._times = Histogram(
            f"{name}_duration_seconds",
            f"How long single expressions of {words} took.",
            labels,
            buckets=_BUCKETS,
            registry=registry,
        )
        self._names: set[tuple[str, str]] = set()
        self._kind = kind

    def keep(self, review: Review, checks: Sequence[tuple[Any, ...]], reinvocation: int = 0) -> None:
        """Count checks, the parameters of `observe`, once the attempt ends with them."""
        observed(review)[self._kind, reinvocation] = partial(self._count, checks)

    def _count(self, checks: Sequence[tuple[Any, ...]]) -> None:
        for check in checks:
            self.observe(*check)

    def observe(self, policy: str, binding: str, error: str, elapsed_s: float, *action: str) -> None:
        """Count one check. `error` is one of `error_type`; `action`, of validating policies, is allow, deny, warn or
        audit.
        """
        if (policy, binding) not in self._names:
            if len(self._names) >= MAX_LABELS:
                policy = binding = OTHER
            else:
                self._names.add((policy, binding))
        labels = policy, binding, error, *action
        self._total.labels(*labels).inc()
        self._times.labels(*labels).observe(elapsed_s)


def error_type(message: str) -> str:
    """Return Kubernetes' type of an error, which it tells by the message; a denial is an invalid_error to it."""
    if message.startswith("compilation"):
        return "compile_error"
    if message.startswith("validation failed due to running out of cost budget"):
        return "out_of_budget"
    return "invalid_error"
