"""MutatingAdmissionPolicies on one request: match, then change the object policy by policy.

Configured admission calls it in each round. Which policies and bindings match is decided by the object before the
first of them; each sees the object as the ones before left it, in the version that it matches. Errors are collected and
answered together; a policy goes on with its next mutation after an error, as in Kubernetes. Invariant: the object
changes through `Review.settle` alone, so a policy may write no more than a client, and no field manager owns it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from atoll.machinery.apiserver.admission.chain import Review
from atoll.machinery.apiserver.admission.configured.equivalents import presented, restored
from atoll.machinery.apiserver.admission.configured.matching import Request
from atoll.machinery.apiserver.admission.configured.registry import Acting
from atoll.machinery.apiserver.admission.configured.reinvocation import Rounds
from atoll.machinery.apiserver.admission.configured.requests import request_of
from atoll.machinery.apiserver.admission.expressions.conditions import ConditionsFailed, conditions_match
from atoll.machinery.apiserver.admission.expressions.request_values import Authorize
from atoll.machinery.apiserver.admission.policies.dispatch import MatchedPolicy, PolicyRequest
from atoll.machinery.apiserver.admission.policies.errors import ConfigurationError
from atoll.machinery.apiserver.admission.policies.metrics import PolicyMetrics, error_type
from atoll.machinery.apiserver.admission.policies.mutation import MutationFailed, mutated
from atoll.machinery.apiserver.admission.policies.parameters import Parameters
from atoll.machinery.apiserver.admission.policies.policy import Binding, BoundPolicy, Policy
from atoll.machinery.apiserver.admission.policies.program import MutatingProgram, compile_mutating
from atoll.machinery.apiserver.admission.policies.programs import Programs
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.catalog.merge_types import open_schema, type_schema_of
from atoll.machinery.meta.objects import Object, fresh
from atoll.machinery.meta.status import ApiError, Cause, Details, InternalError


class _Invocation(NamedTuple):
    """A policy that acts, with a binding and one of its parameters; `position` is that of the parameter."""

    matched: MatchedPolicy
    binding: Binding
    position: int
    param: tuple[str, str]

    @property
    def policy(self) -> Policy:
        return self.matched.bound.policy

    @property
    def key(self) -> tuple[str, str, str, tuple[str, str]]:
        """What reinvocation knows it by."""
        return self.matched.bound.cluster, self.policy.name, self.binding.name, self.param


class _Problem(NamedTuple):
    """An error of a policy. One of an evaluation has the reason Invalid, one of a configuration has none."""

    message: str
    reason: str


class MutatingPolicies:
    """The MutatingAdmissionPolicies of a server: their programs and parameters. One per event loop."""

    def __init__(self, parameters: Parameters, authorize: Authorize, metrics: PolicyMetrics) -> None:
        self._parameters, self._authorize, self._metrics = parameters, authorize, metrics
        self._programs: Programs[MutatingProgram] = Programs(compile_mutating)

    def mutate(self, review: Review, acting: Acting, rounds: Rounds) -> None:
        """Apply the policies of a request in order. Raises the error of policies that fail."""
        mutations = _Mutations(self, review, acting, rounds)
        mutations.run(acting.mutating_policies)
        self._metrics.keep(review, mutations.observed, rounds.number)
        mutations.raise_denial()

    def request(self, review: Review, request: Request) -> PolicyRequest:
        """Return what the policies share about a request as it is now."""
        return PolicyRequest(review, request, self._parameters, self._authorize)

    def program(self, policy: Policy) -> MutatingProgram:
        return self._programs.of(policy)


class _Mutations:
    """The policies of one request in one round."""

    def __init__(self, policies: MutatingPolicies, review: Review, acting: Acting, rounds: Rounds) -> None:
        self._policies, self._review, self._acting, self._rounds = policies, review, acting, rounds
        self._problems: list[_Problem] = []
        #: Of each mutation: policy, binding, error, seconds.
        self.observed: list[tuple[str, str, str, float]] = []
        self._first = self._request = request_of(review, acting.equivalents, named=False)
        self._current = policies.request(review, self._request)

    def run(self, bound: Sequence[BoundPolicy]) -> None:
        """Match, then mutate."""
        for invocation in [found for each in bound for found in self._invocations(each)]:
            self._invoke(invocation)

    def raise_denial(self) -> None:
        """Raise the errors of policies under failurePolicy Fail."""
        if self._problems:
            raise _denied(self._first, self._problems)

    def _invocations(self, bound: BoundPolicy) -> Iterator[_Invocation]:
        """Yield what a policy does: once for each parameter of each binding."""
        try:
            matched = self._current.match(bound)
        except ConfigurationError as error:
            self._add(bound.policy, None, f"failed to configure policy: {error}", "")
            return
        for binding in bound.bindings if matched is not None else ():
            try:
                assert matched is not None
                found = self._current.values(matched, binding) if self._current.matches(binding) else ()
            except ConfigurationError as error:
                self._add(bound.policy, binding, f"failed to configure binding: {error}", "")
                continue
            for position, values in enumerate(found):
                yield _Invocation(matched, binding, position, _name(values["params"]))

    def _add(self, policy: Policy, binding: Binding | None, text: str, reason: str = "Invalid") -> None:
        """Add an error, which denies under failurePolicy Fail."""
        if policy.fails:
            subject = f"policy '{policy.name}' with binding '{binding.name}'" if binding else f'policy "{policy.name}"'
            self._problems.append(_Problem(f"{subject} denied request: {text}", reason))

    def _values(self, invocation: _Invocation) -> Mapping[str, Any]:
        """Return the variables of an invocation, with the object as it is now."""
        return self._current.values(invocation.matched, invocation.binding)[invocation.position]

    def _invoke(self, invocation: _Invocation) -> None:
        policy, binding = invocation.policy, invocation.binding
        program = self._policies.program(policy)
        if program.conditions:
            try:
                if not conditions_match(program.conditions, self._values(invocation), program.scope):
                    return
            except ConditionsFailed as error:
                self._add(policy, binding, str(error))
                return
        if not self._rounds.policies.acts(invocation.key):
            return
        before = self._review.result
        for index in range(len(program.mutations)):
            self._mutate(invocation, program, index)
        changed = self._review.result != before
        self._rounds.policies.done(invocation.key, changed=changed, reinvocable=policy.reinvocation == "IfNeeded")

    def _mutate(self, invocation: _Invocation, program: MutatingProgram, index: int) -> None:
        start_s, request, kind = time.perf_counter(), self._request, invocation.matched.matched
        assert request.obj is not None
        obj = presented(request.kind, request.obj, kind, request.subresource)
        types = open_schema() if request.subresource == "scale" else type_schema_of(kind)
        try:
            found = mutated(program, program.mutations[index], self._values(invocation), obj, types)
        except MutationFailed as error:
            self._observe(invocation, error_type(str(error)), start_s)
            self._add(invocation.policy, invocation.binding, str(error))
            return
        self._observe(invocation, "no_error", start_s)
        if found is not obj:
            _check(found, obj)
            self._settle(restored(request.kind, fresh(found), kind, request.subresource))

    def _observe(self, invocation: _Invocation, error: str, start_s: float) -> None:
        names = invocation.policy.name, invocation.binding.name
        self.observed.append((*names, error, time.perf_counter() - start_s))

    def _settle(self, changed: Object) -> None:
        """Take a change; what follows sees it."""
        self._review.settle(changed)
        self._request = request_of(self._review, self._acting.equivalents, named=False)
        self._current = self._policies.request(self._review, self._request)


def _name(param: Object | None) -> tuple[str, str]:
    """Return namespace and name of a parameter."""
    metadata = (param or {}).get("metadata") or {}
    return str(metadata.get("namespace", "")), str(metadata.get("name", ""))


def _check(changed: Object, before: Object) -> None:
    """Reject what is no object of the kind any more. Raises InternalError, whatever the failure policy."""
    for field in ("apiVersion", "kind"):
        if changed.get(field) != before[field]:
            raise InternalError(f"Internal error occurred: a policy changed {field}")
    if not isinstance(changed.get("metadata"), dict):
        raise InternalError("Internal error occurred: a policy removed metadata")


def _denied(request: Request, problems: Sequence[_Problem]) -> ApiError:
    """Return the answer to a request: the first message, the reason of the first error, all messages as causes."""
    shown = errors.details(request.kind, request.display_name)
    causes = tuple(Cause(message=problem.message) for problem in problems)
    details = Details(shown.name, shown.group, shown.kind, causes=causes)
    return ApiError(problems[0].message, details, code=403, reason=problems[0].reason or "Forbidden")
