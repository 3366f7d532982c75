"""Questions to admission webhooks and their answers: what a plan knows of webhooks, and what a call knows of plans.

A plan finds the webhooks that act on it and puts a `Question` to each. `answers` returns what was answered before, or
stops the plan with `Unasked`: the writing service then asks outside of the snapshot, all questions of one `Unasked` in
parallel, and goes on with the plan, or plans again. Whoever asks (`Ask`) makes the AdmissionReview, calls, checks the
answer and applies its patch; it reads no store and no plan. Invariant: an answer is used only for a question of the
same content, within the same attempt to write.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from atoll.machinery.apiserver.admission.configured.matching import PART_BYTES, Criteria, Request
from atoll.machinery.apiserver.call.attempt import Attempt
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.cached_property import cached_property
from atoll.machinery.meta.missing_answer import MissingAnswer
from atoll.machinery.meta.objects import LARGE_BYTES, Object, encode_json
from atoll.machinery.meta.sizes import size_bytes
from atoll.machinery.meta.status import ApiError
from atoll.machinery.process.time_slicing import checkpoint

#: Questions of one write that are asked at the same time; the others do not count as calls that wait.
AT_ONCE = 64


class WebhookEntry(msgspec.Struct, frozen=True, weakref=True):
    """An entry of `webhooks`, of any configuration: clientConfig, failurePolicy, matchConditions and all else, with
    defaults."""

    stored: Object
    criteria: Criteria
    size_bytes: int

    @staticmethod
    def of(stored: Object) -> WebhookEntry:
        criteria = Criteria.of_webhook(stored)
        return WebhookEntry(stored, criteria, PART_BYTES + size_bytes(stored) + size_bytes(criteria))


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """One webhook of a stored configuration. `uid` and `generation` are those of the configuration.

    `index` is its place among the webhooks of the configuration.
    """

    entry: WebhookEntry
    mutating: bool
    configuration: str
    uid: str
    generation: int
    index: int

    @property
    def name(self) -> str:
        return str(self.entry.stored["name"])

    @property
    def stored(self) -> Object:
        return self.entry.stored

    @property
    def criteria(self) -> Criteria:
        return self.entry.criteria


class Objects(msgspec.Struct, frozen=True, dict=True):
    """The object of a write and the one before, in one version, as all webhooks of that version see them.

    They are the caller's: they are not changed. Encoding them is most of the work of a question.
    """

    obj: Object | None
    old: Object | None

    @cached_property
    def encoded(self) -> bytes:
        """Their fields in the request of an AdmissionReview."""
        found = b'"object":%b,"oldObject":%b' % (encode_json(self.obj), encode_json(self.old))
        if len(found) > LARGE_BYTES:
            checkpoint()
        return found

    @cached_property
    def digest(self) -> bytes:
        return hashlib.blake2b(self.encoded, digest_size=16).digest()


class Question(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One request put to one webhook.

    `cluster` is that of the write, `request` is as the client made it. `described` is the AdmissionRequest of the
    review without uid and objects (`expressions.request`); `objects` are in the version of `kind`, which differs from
    that of the request where a rule matched an equivalent version, and carry the cluster annotation. `place` is the
    position among all mutating webhooks of the request, `reinvocation` 1 in the second round, as audit annotations
    count them.
    """

    webhook: Webhook
    cluster: str = ""
    request: Request
    kind: Kind
    described: Object
    objects: Objects
    place: int = 0
    reinvocation: int = 0

    @cached_property
    def key(self) -> tuple[object, ...]:
        """What makes it the same question within one attempt of a write."""
        webhook = self.webhook
        described = hashlib.blake2b(encode_json(self.described), digest_size=16).digest()
        return webhook.uid, webhook.generation, webhook.index, self.reinvocation, described, self.objects.digest


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one question. `denial` rejects the write.

    `obj` is the object as a mutating webhook patched it, in the version of the question; None if it is unchanged.
    `warnings` are for the client, `audit` are audit annotations: both count whether the write is denied or not. A call
    that failed under failurePolicy Ignore is an answer without denial.
    """

    denial: ApiError | None = None
    obj: Object | None = None
    warnings: Sequence[str] = ()
    audit: Mapping[str, str] = {}


#: Puts a question to its webhook. Raises nothing but for cancellation: a failed call is an Answer too.
Ask: TypeAlias = Callable[[Question], Awaitable[Answer]]


class Unasked(MissingAnswer):
    """A plan lacks answers of webhooks. Without `attempt` it was made where it cannot wait."""

    def __init__(self, questions: Sequence[Question], ask: Ask, attempt: Attempt | None) -> None:
        super().__init__(", ".join(question.webhook.name for question in questions))
        self._questions, self._ask, self._attempt = questions, ask, attempt

    async def fetch(self) -> None:
        """Ask all questions, AT_ONCE in parallel; answers are kept in the order in which they come."""
        if self._attempt is None:
            raise self
        if len(self._questions) == 1:
            await self._put(self._attempt, self._questions[0])
            return
        left = iter(self._questions)
        async with asyncio.TaskGroup() as group:
            for _ in self._questions[:AT_ONCE]:
                group.create_task(self._put_each(self._attempt, left))

    async def _put_each(self, attempt: Attempt, questions: Iterator[Question]) -> None:
        for question in questions:
            await self._put(attempt, question)

    async def _put(self, attempt: Attempt, question: Question) -> None:
        attempt.answers[question.key] = await self._ask(question)


def answers(questions: Sequence[Question], ask: Ask, attempt: Attempt | None) -> list[Answer]:
    """Return the answers to all questions, in the order in which they came.

    Raises Unasked while some are missing, or postpones them in a batch.
    """
    found = attempt.answers if attempt is not None else {}
    missing = [question for question in questions if question.key not in found]
    if missing:
        lacking = Unasked(missing, ask, attempt)
        if attempt is None or attempt.postponed is None:
            raise lacking
        attempt.postponed.lacking.append(lacking)
    wanted = {question.key for question in questions}
    return [answer for key, answer in found.items() if key in wanted]
