"""ValidatingAdmissionPolicies on one request: match, evaluate, then deny, warn and annotate.

Configured admission calls it with the policies that may act on a kind. Policies and bindings are evaluated by name. The
first denial is the answer, with its message as the only cause, as in Kubernetes. Invariant: nothing is reported before
every policy has decided, because an evaluation may be stopped and repeated beside the loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from atoll.machinery.apiserver.admission.chain import Review
from atoll.machinery.apiserver.admission.configured.matching import Request
from atoll.machinery.apiserver.admission.expressions.request_values import Authorize, RequestValues
from atoll.machinery.apiserver.admission.policies.errors import ConfigurationError
from atoll.machinery.apiserver.admission.policies.metrics import PolicyMetrics
from atoll.machinery.apiserver.admission.policies.parameters import Parameters
from atoll.machinery.apiserver.admission.policies.policy import Binding, BoundPolicy, Policy
from atoll.machinery.apiserver.admission.policies.program import ValidatingProgram, compile_validating
from atoll.machinery.apiserver.admission.policies.programs import Programs
from atoll.machinery.apiserver.admission.policies.report import Report
from atoll.machinery.apiserver.admission.policies.validation import validate
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.status import NotFound


class MatchedPolicy(msgspec.Struct, frozen=True):
    """A policy that matches a request: the version in which it sees the objects, and the kind of its parameters."""

    bound: BoundPolicy
    matched: Kind
    params: Kind | None


class PolicyRequest:
    """What all policies of a request share: its variables in each version, and its parameters.

    Policies of both kinds make one for each request that one of them matches.
    """

    def __init__(self, review: Review, request: Request, parameters: Parameters, authorize: Authorize) -> None:
        self.review, self.request = review, request
        self._parameters, self._authorize = parameters, authorize
        self._values: dict[str, RequestValues] = {}

    def match(self, bound: BoundPolicy) -> MatchedPolicy | None:
        """Return a policy that matches, else None. Raises ConfigurationError."""
        try:
            matched = bound.policy.criteria.match(self.request)
        except NotFound as error:
            raise ConfigurationError(error.message) from None
        if matched is None:
            return None
        return MatchedPolicy(bound, matched, self._parameters.kind(self.review.view, bound))

    def matches(self, binding: Binding) -> bool:
        """Report whether a binding of a policy that matches does so too. Raises ConfigurationError."""
        try:
            return binding.criteria is None or binding.criteria.match(self.request) is not None
        except NotFound as error:
            raise ConfigurationError(error.message) from None

    def values(self, policy: MatchedPolicy, binding: Binding) -> Sequence[Mapping[str, Any]]:
        """Return the variables for each parameter of a binding. Raises ConfigurationError."""
        found = self._parameters.of(self.review.view, policy.bound, policy.params, binding, self.request.namespace)
        base = self._values.get(policy.matched.api_version)
        if base is None and found:
            base = RequestValues(self.review, self.request, policy.matched, self._authorize)
            self._values[policy.matched.api_version] = base
        return [] if base is None else [base.with_params(param) for param in found]


class ValidatingPolicies:
    """The ValidatingAdmissionPolicies of a server: their programs and parameters. One per event loop."""

    def __init__(self, parameters: Parameters, authorize: Authorize, metrics: PolicyMetrics) -> None:
        self._parameters, self._authorize, self._metrics = parameters, authorize, metrics
        self._programs: Programs[ValidatingProgram] = Programs(compile_validating)

    def validate(self, review: Review, request: Request, policies: Sequence[BoundPolicy]) -> None:
        """Evaluate the policies on a request. Raises the denial of the first one that denies."""
        shared, report = PolicyRequest(review, request, self._parameters, self._authorize), Report()
        for bound in policies:
            self._evaluate(shared, bound, report)
        report.publish(review, request, self._metrics)

    def _evaluate(self, shared: PolicyRequest, bound: BoundPolicy, report: Report) -> None:
        try:
            matched = shared.match(bound)
        except ConfigurationError as error:
            report.misconfigured(bound.policy, None, str(error))
            return
        if matched is None:
            return
        for binding in bound.bindings:
            try:
                if shared.matches(binding):
                    self._bound(shared, matched, binding, report)
            except ConfigurationError as error:
                report.misconfigured(bound.policy, binding, str(error))

    def _bound(self, shared: PolicyRequest, matched: MatchedPolicy, binding: Binding, report: Report) -> None:
        policy: Policy = matched.bound.policy
        for values in shared.values(matched, binding):
            outcome = validate(self._programs.of(policy), values, fails=policy.fails)
            report.add(policy, binding, outcome)
