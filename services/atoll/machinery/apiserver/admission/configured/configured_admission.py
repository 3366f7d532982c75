"""Admission by what users configured: policies and webhooks, in Kubernetes' order, within the plan of a write.

The chain calls `mutate` after its own mutating plug-ins and `validate` before its validating ones. Mutating policies
and webhooks act one after the other, validating webhooks are asked at the same time. What is configured is looked up
once for each write. Invariant: everything here may be stopped and made again; webhooks are asked by whoever plans, and
what takes long is evaluated beside the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol

import msgspec

from atoll.machinery.apiserver.admission.chain import Review
from atoll.machinery.apiserver.admission.configured.equivalents import presented, restored
from atoll.machinery.apiserver.admission.configured.matching import Request
from atoll.machinery.apiserver.admission.configured.metrics import ADMIT, VALIDATE, AdmissionMetrics
from atoll.machinery.apiserver.admission.configured.questions import (
    Answer,
    Ask,
    Objects,
    Question,
    Unasked,
    Webhook,
    answers,
)
from atoll.machinery.apiserver.admission.configured.registry import Acting, PlacedWebhook, Registry
from atoll.machinery.apiserver.admission.configured.reinvocation import Rounds
from atoll.machinery.apiserver.admission.configured.requests import request_of, with_cluster
from atoll.machinery.apiserver.admission.expressions.request import admission_request
from atoll.machinery.apiserver.admission.policies.policy import BoundPolicy
from atoll.machinery.apiserver.call.attempt import evaluated
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.cached_property import cached_property
from atoll.machinery.meta.missing_answer import MissingAnswer
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.objects import Object, fresh
from atoll.machinery.meta.status import InternalError


def _next(pending: Iterator[MissingAnswer | None]) -> MissingAnswer | None:
    """Go on with a mutation. Its last item is None: one that was cut short is never taken for one that ended."""
    try:
        return next(pending)
    except StopIteration:
        raise InternalError("Internal error occurred: a mutation was cut short") from None


class ValidatingPolicies(Protocol):
    """Evaluates ValidatingAdmissionPolicies."""

    def validate(self, review: Review, request: Request, policies: Sequence[BoundPolicy]) -> None:
        """Raise the denial of the first policy that denies; add warnings and audit annotations to the call."""


class MutatingPolicies(Protocol):
    """Evaluates MutatingAdmissionPolicies."""

    def mutate(self, review: Review, acting: Acting, rounds: Rounds) -> None:
        """Apply `acting.mutating_policies` in order, each to the object as the ones before left it.

        Sets `review.obj` to `review.settle(changed)` after each change, and notes in `rounds.policies` what acted.
        Raises the error of a policy that fails.
        """


class MatchConditions(Protocol):
    """Evaluates the matchConditions of webhooks."""

    def hold(self, review: Review, request: Request, webhook: Webhook, kind: Kind) -> bool:
        """Whether the webhook is to be asked. Raises Forbidden where that has no answer and failurePolicy is Fail."""


class Evaluators(msgspec.Struct, frozen=True):
    """What evaluates expressions; made once something configured acts, since the language takes memory."""

    conditions: MatchConditions
    validating: ValidatingPolicies
    mutating: MutatingPolicies | None = None


class ConfiguredAdmission:
    """Mutates and validates writes as configured."""

    def __init__(
        self,
        registry: Registry,
        evaluators: Callable[[], Evaluators],
        ask: Ask | None = None,
        metrics: AdmissionMetrics | None = None,
    ) -> None:
        self.registry, self.is_empty = registry, True
        self._make, self._ask, self._metrics = evaluators, ask, metrics or AdmissionMetrics()
        self._timed = self._metrics.timed

    @cached_property
    def _evaluators(self) -> Evaluators:
        return self._make()

    def mutate(self, review: Review, own: Callable[[Review], None]) -> None:
        """Mutate the object of a review. `own` runs the server's own plug-ins, which see and limit each change."""
        call = review.call
        acting = review.acting = self.registry.acting(review.view, call.cluster, call.kind)
        self.is_empty = self.registry.is_empty
        if acting is None or not (acting.mutating_policies or acting.mutating_webhooks):
            return
        review.pending = self._rounds(review, acting, own)
        self.go_on(review)

    def go_on(self, review: Review) -> None:
        """Mutate until an answer is missing, which is raised: the mutation is then pending."""
        pending, review.pending = review.pending, None
        assert pending is not None
        with self._timed(review, ADMIT):
            lacking = evaluated(review.call.attempt, partial(_next, pending))
            if lacking is not None:
                review.pending = pending
                raise lacking

    def _rounds(self, review: Review, acting: Acting, own: Callable[[Review], None]) -> Iterator[MissingAnswer | None]:
        """Mutate; yield each missing answer, and go on once it is there; in the end yield None."""
        rounds = Rounds()
        yield from self._round(review, acting, rounds)
        if rounds.is_needed:
            own(review)
            rounds.number = 1
            yield from self._round(review, acting, rounds)
            own(review)
        yield None

    def leave(self, review: Review) -> None:
        self._metrics.count(review)

    def validate(self, review: Review) -> None:
        """Accept or reject the object of a review. Raises the ApiError of a rejection.

        If that lacked answers of webhooks, the same review is validated again by them alone.
        """
        acting = review.acting
        if acting is None:
            return
        with self._timed(review, VALIDATE):
            if review.questions and self._ask is not None:
                with self._timed(review, VALIDATE, "ValidatingAdmissionWebhook"):
                    _publish(review, answers(review.questions, self._ask, review.call.attempt))
            else:
                evaluated(review.call.attempt, partial(self._validated, review, acting))

    def _validated(self, review: Review, acting: Acting) -> None:
        request = request_of(review, acting.equivalents)
        if acting.validating_policies:
            with self._timed(review, VALIDATE, "ValidatingAdmissionPolicy"):
                self._evaluators.validating.validate(review, request, acting.validating_policies)
        if acting.validating_webhooks and self._ask is not None:
            with self._timed(review, VALIDATE, "ValidatingAdmissionWebhook"):
                self._answered(review, acting, request, self._ask)

    def _answered(self, review: Review, acting: Acting, request: Request, ask: Ask) -> None:
        """Ask all validating webhooks that match."""
        seen = _Seen(review, request)
        questions = [
            self._question(seen, webhook, kind)
            for webhook in acting.validating_webhooks
            if (kind := self._matched(review, request, webhook)) is not None
        ]
        if questions:
            review.questions = questions
            _publish(review, answers(questions, ask, review.call.attempt))

    def may_cover(self, view: View, cluster: str, types: Iterable[ResourceType]) -> bool:
        return self.registry.may_act(view, cluster, types)

    def covers(self, view: View, cluster: str, kind: Kind, operation: str) -> bool:
        acting = self.registry.acting(view, cluster, kind)
        return acting is not None and acting.covers(operation)

    def _round(self, review: Review, acting: Acting, rounds: Rounds) -> Iterator[MissingAnswer]:
        if acting.mutating_policies and review.obj is not None and self._evaluators.mutating is not None:
            rounds.policies.enter(review.obj)
            with self._timed(review, ADMIT, "MutatingAdmissionPolicy"):
                self._evaluators.mutating.mutate(review, acting, rounds)
            rounds.policies.leave(review.obj)
        if acting.mutating_webhooks and self._ask is not None:
            rounds.webhooks.enter(review.obj)
            with self._timed(review, ADMIT, "MutatingAdmissionWebhook"):
                seen = _Seen(review, request_of(review, acting.equivalents, named=False))
                for placed in acting.mutating_webhooks:
                    question = self._question_for(seen, placed, rounds)
                    if question is None:
                        continue
                    try:
                        found = answers([question], self._ask, review.call.attempt)
                    except Unasked as lacking:
                        # Who catches it clears the frames that raised it, and this one is still needed.
                        yield lacking.with_traceback(None)
                        found = answers([question], self._ask, review.call.attempt)
                    if self._changed(seen, question, found, rounds):
                        seen = _Seen(review, request_of(review, acting.equivalents, named=False))
            rounds.webhooks.leave(review.obj)

    def _question_for(self, seen: _Seen, placed: PlacedWebhook, rounds: Rounds) -> Question | None:
        """Return what a mutating webhook is asked; None if it does not act."""
        kind = self._matched(seen.review, seen.request, placed.webhook)
        if kind is None or not rounds.webhooks.acts(_key(placed.webhook)):
            return None
        return self._question(seen, placed.webhook, kind, placed.place, rounds.number)

    def _changed(self, seen: _Seen, question: Question, found: Sequence[Answer], rounds: Rounds) -> bool:
        """Take what a webhook changed; return whether it changed anything."""
        review, request, webhook = seen.review, seen.request, question.webhook
        _publish(review, found)
        changed = [each.obj for each in found if each.obj is not None and review.obj is not None]
        for obj in changed:
            review.settle(restored(request.kind, fresh(obj), question.kind, request.subresource))
        reinvocable = webhook.stored.get("reinvocationPolicy") == "IfNeeded"
        rounds.webhooks.done(_key(webhook), changed=bool(changed), reinvocable=reinvocable)
        return bool(changed)

    def _matched(self, review: Review, request: Request, webhook: Webhook) -> Kind | None:
        """Return the version in which a webhook is asked about a request; None if it is not."""
        kind = webhook.criteria.match(request)
        if kind is None or not webhook.stored.get("matchConditions"):
            return kind
        return kind if self._evaluators.conditions.hold(review, request, webhook, kind) else None

    def _question(self, seen: _Seen, webhook: Webhook, kind: Kind, place: int = 0, reinvocation: int = 0) -> Question:
        return Question(
            webhook=webhook,
            cluster=seen.review.call.cluster,
            request=seen.request,
            kind=kind,
            described=admission_request(seen.review, seen.request, kind),
            objects=seen.objects(kind),
            place=place,
            reinvocation=reinvocation,
        )


class _Seen:
    """A review as webhooks see it until one changes its object."""

    def __init__(self, review: Review, request: Request) -> None:
        self.review, self.request = review, request
        self._objects: dict[str, Objects] = {}

    def objects(self, kind: Kind) -> Objects:
        """Return the objects in the version of a kind, made once."""
        found = self._objects.get(kind.api_version)
        if found is None:
            request = self.request
            found = Objects(self._form(request.obj, kind), self._form(request.old, kind))
            self._objects[kind.api_version] = found
        return found

    def _form(self, obj: Object | None, kind: Kind) -> Object | None:
        request = self.request
        shown = None if obj is None else presented(request.kind, obj, kind, request.subresource)
        return with_cluster(shown, self.review.call.cluster)


def _key(webhook: Webhook) -> Hashable:
    return webhook.uid, webhook.index


def _publish(review: Review, found: Sequence[Answer]) -> None:
    """Hand warnings and annotations to the client and the audit log. Raises the first denial."""
    for answer in found:
        review.call.warnings.extend(answer.warnings)
        review.call.audit.update(answer.audit)
    for answer in found:
        if answer.denial is not None:
            raise answer.denial
