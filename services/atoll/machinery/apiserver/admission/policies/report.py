"""What the policies of one request say: denials, warnings, audit annotations, metrics.

`dispatch` adds the outcome of each evaluation and publishes at the end. Invariant: before `publish` nobody sees
anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from atoll.machinery.apiserver.admission.chain import Review
from atoll.machinery.apiserver.admission.configured.matching import Request
from atoll.machinery.apiserver.admission.policies.metrics import PolicyMetrics, error_type
from atoll.machinery.apiserver.admission.policies.policy import Binding, Policy
from atoll.machinery.apiserver.admission.policies.validation import Annotation, Decision, Outcome
from atoll.machinery.apiserver.call import errors
from atoll.machinery.meta.status import ApiError, Cause, Details

#: Bytes of an audit annotation; a longer one is cut.
MAX_ANNOTATION_BYTES = 10 * 1024
FAILURE_KEY = "validation.policy.admission.k8s.io/validation_failure"
_CODES = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413, "Invalid": 422}


class _Denial(NamedTuple):
    policy: str
    binding: str
    message: str
    reason: str

    @property
    def text(self) -> str:
        bound = f" with binding '{self.binding}'" if self.binding else ""
        return f"ValidatingAdmissionPolicy '{self.policy}'{bound} denied request: {self.message}"


class _Observation(NamedTuple):
    """One check in the metrics."""

    policy: str
    binding: str
    error: str
    elapsed_s: float
    action: str


class Report:
    """Collects outcomes in the order of evaluation."""

    def __init__(self) -> None:
        self._denials: list[_Denial] = []
        self._warnings: list[str] = []
        self._failure = ""
        self._annotations: dict[str, list[str]] = {}
        self._observed: list[_Observation] = []

    def misconfigured(self, policy: Policy, binding: Binding | None, reason: str) -> None:
        """Add a policy or binding that cannot be applied: it denies under failurePolicy Fail."""
        if policy.fails:
            what = "policy" if binding is None else "binding"
            name = "" if binding is None else binding.name
            self._denials.append(_Denial(policy.name, name, f"failed to configure {what}: {reason}", ""))

    def add(self, policy: Policy, binding: Binding, outcome: Outcome) -> None:
        """Add the outcome of a policy with a binding and one parameter."""
        for decision in outcome.decisions:
            if decision.denies:
                self._enforce(policy, binding, decision)
            else:
                self._observe(policy, binding, decision.message, "allow", decision.elapsed_s)
        for annotation in outcome.annotations:
            self._annotate(policy, binding, annotation)

    def _enforce(self, policy: Policy, binding: Binding, decision: Decision) -> None:
        for action in binding.actions:
            if action == "Deny":
                self._denials.append(_Denial(policy.name, binding.name, decision.message, decision.reason))
            elif action == "Audit":
                self._failure = _failure(policy, binding, decision)
            elif action == "Warn":
                bound = f"ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}'"
                self._warnings.append(f"Validation failed for {bound}: {decision.message}")
            self._observe(policy, binding, decision.message, action.lower(), decision.elapsed_s)

    def _annotate(self, policy: Policy, binding: Binding, annotation: Annotation) -> None:
        if annotation.error:
            self._denials.append(_Denial(policy.name, binding.name, annotation.error, ""))
            self._observe(policy, binding, annotation.error, "deny", annotation.elapsed_s)
            return
        values = self._annotations.setdefault(f"{policy.name}/{annotation.key}", [])
        value = annotation.value.encode()[:MAX_ANNOTATION_BYTES].decode(errors="ignore")
        if value not in values:
            values.append(value)

    def _observe(self, policy: Policy, binding: Binding, message: str, action: str, elapsed_s: float) -> None:
        error = error_type(message)
        self._observed.append(_Observation(policy.name, binding.name, error, elapsed_s, action))

    def publish(self, review: Review, request: Request, metrics: PolicyMetrics) -> None:
        """Hand everything to the request and the metrics. Raises the first denial."""
        metrics.keep(review, self._observed)
        review.call.warnings.extend(self._warnings)
        if self._failure:
            review.call.audit[FAILURE_KEY] = self._failure
        for key, values in self._annotations.items():
            review.call.audit[key] = ", ".join(values)
        if self._denials:
            raise denied(request, [denial.text for denial in self._denials[:1]], self._denials[0].reason)


def denied(request: Request, messages: Sequence[str], reason: str) -> ApiError:
    """Return the denial of a request: the first message is the answer's, all are causes. `reason` decides the code."""
    kind, reason = request.kind, reason or "Invalid"
    name = request.display_name
    refusal = errors.forbidden(kind, name, messages[0])
    details = Details(name, kind.group, kind.plural, causes=tuple(Cause(message=message) for message in messages))
    return ApiError(refusal.message, details, code=_CODES.get(reason, 422), reason=reason)


def _failure(policy: Policy, binding: Binding, decision: Decision) -> str:
    """Return the audit annotation of a failure, with the escapes of Go's encoder."""
    failure = {
        "message": decision.message,
        "policy": policy.name,
        "binding": binding.name,
        "expressionIndex": decision.position,
        "validationActions": binding.actions,
    }
    text = msgspec.json.encode([failure]).decode()
    for char, escape in (("&", "\\u0026"), ("<", "\\u003c"), (">", "\\u003e")):
        text = text.replace(char, escape)
    return text
