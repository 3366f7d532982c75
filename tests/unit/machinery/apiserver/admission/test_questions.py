"""Plans that lack answers of webhooks: they leave the snapshot, ask, and are made again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
from msgspec.structs import replace

from atoll.machinery.apiserver.admission.chain import Admission, Plugin, Review
from atoll.machinery.apiserver.admission.configured.matching import CREATE, Request
from atoll.machinery.apiserver.admission.configured.questions import (
    AT_ONCE,
    Answer,
    Ask,
    Objects,
    Question,
    Unasked,
    Webhook,
    WebhookEntry,
    answers,
)
from atoll.machinery.apiserver.call.attempt import Attempt
from atoll.machinery.apiserver.call.call import Call, View
from atoll.machinery.apiserver.call.options import WriteOptions
from atoll.machinery.apiserver.rest.create import plan_create
from atoll.machinery.apiserver.rest.write import PreparedWrite
from atoll.machinery.apiserver.writing import commit
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target, make_call
from atoll.machinery.egress.guard import BOUNDS
from atoll.machinery.kinds.core.configmaps import CONFIGMAPS
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode, fresh
from atoll.machinery.meta.status import ApiError, Forbidden, Timeout
from atoll.machinery.meta.types import CONFIG_MAPS, NAMESPACES
from atoll.machinery.storage.contract import Delete
from harness.servers.in_process.minimal_shard import Cell, cell

HOME = "home"


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Cell]:
    async with cell(tmp_path) as made:
        await made.cluster(HOME)
        await made.put(NAMESPACES, HOME, {"metadata": {"name": "default"}})
        yield made


def webhook(index: int = 0, *, generation: int = 1) -> Webhook:
    return Webhook(
        entry=WebhookEntry.of({"name": f"w{index}.example.com"}),
        mutating=True,
        configuration="one",
        uid="u",
        generation=generation,
        index=index,
    )


def question(obj: Object, index: int = 0, *, generation: int = 1) -> Question:
    return Question(
        webhook=webhook(index, generation=generation),
        request=Request(operation=CREATE, kind=CONFIGMAPS),
        kind=CONFIGMAPS,
        described={},
        objects=Objects(fresh(obj), None),
    )


class Asking(Plugin):
    """Asks a number of webhooks about each new object, one after the other, or all at once."""

    resources = (("", "configmaps"),)

    def __init__(self, ask: Ask, count: int = 1, *, at_once: bool = False) -> None:
        self._ask, self._count, self._at_once = ask, count, at_once
        self.plannings = 0

    def mutate(self, review: Review) -> None:
        self.plannings += 1
        review.call.warnings.append("planned")
        assert review.obj is not None
        each = [question(review.obj, index) for index in range(self._count)]
        for some in [each] if self._at_once else [[one] for one in each]:
            for answer in answers(some, self._ask, review.call.attempt):
                if answer.denial is not None:
                    raise answer.denial


def target(here: Cell, name: str = "") -> Target:
    return Target(here.kind(CONFIG_MAPS), HOME, "default", name)


def body(name: str = "one") -> Object:
    return {"metadata": {"name": name} if name else {"generateName": "made-"}}


async def test_a_plan_is_made_again_with_the_same_object_until_no_answer_is_missing(here: Cell) -> None:
    asked: list[Question] = []

    async def ask(question: Question) -> Answer:
        asked.append(question)
        return Answer()

    plugin = Asking(ask, 3)
    here.admit(plugin)
    made = await here.loopback.create(target(here), body(""))
    assert [each.webhook.index for each in asked] == [0, 1, 2]
    assert plugin.plannings == 4
    seen = {
        (each.objects.obj["metadata"]["uid"], each.objects.obj["metadata"]["name"])
        for each in asked
        if each.objects.obj
    }
    assert seen == {(made["metadata"]["uid"], made["metadata"]["name"])}
    stamps = {each.objects.obj["metadata"]["creationTimestamp"] for each in asked if each.objects.obj}
    assert stamps == {made["metadata"]["creationTimestamp"]}


async def test_questions_of_one_plan_are_asked_in_parallel_and_the_first_denial_is_the_answer(here: Cell) -> None:
    together = asyncio.Barrier(3)

    async def ask(question: Question) -> Answer:
        await together.wait()
        if question.webhook.index:
            for _ in range(5 - question.webhook.index):
                await asyncio.sleep(0)
            return Answer(denial=Forbidden(question.webhook.name))
        return Answer()

    here.admit(Asking(ask, 3, at_once=True))
    with pytest.raises(Forbidden, match=r"w2\.example\.com"):
        await here.loopback.create(target(here), body())
    assert here.loopback.get(CONFIG_MAPS, HOME, "default", "one") is None


async def test_so_many_questions_of_one_plan_are_under_way_that_none_is_one_call_too_many() -> None:
    running, most, asked = 0, 0, list[int]()

    async def ask(question: Question) -> Answer:
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        asked.append(question.webhook.index)
        await asyncio.sleep(0)
        running -= 1
        return Answer()

    attempt, each = Attempt(), [question(body(), index) for index in range(5 * AT_ONCE)]
    await Unasked(each, ask, attempt).fetch()
    assert (most, sorted(asked)) == (AT_ONCE, list(range(5 * AT_ONCE)))
    assert BOUNDS.per_lane + BOUNDS.waiting >= AT_ONCE
    assert len(answers(each, ask, attempt)) == len(each)


async def test_after_a_conflict_with_another_writer_webhooks_are_asked_anew(here: Cell) -> None:
    stored = await here.loopback.create(target(here), {**body(), "data": {"by": "first"}})
    asked: list[Object] = []

    async def ask(question: Question) -> Answer:
        assert question.objects.obj is not None
        asked.append(question.objects.obj)
        if len(asked) == 1:
            await here.store.submit([Delete(KEY, int(stored["metadata"]["resourceVersion"]))])
        return Answer()

    here.admit(Asking(ask))
    updated = await here.loopback.apply(target(here, "one"), {**APPLIED, "data": {"a": "1"}}, "test")
    assert len(asked) == 2
    assert asked[1]["data"] == updated["data"] == {"a": "1"}
    assert updated["metadata"]["uid"] != stored["metadata"]["uid"]


KEY = ObjectKey(CONFIG_MAPS, HOME, "default", "one")
APPLIED: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": "default"}}


async def test_answers_that_take_too_long_end_the_write(here: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled: list[str] = []

    async def ask(question: Question) -> Answer:
        try:
            await asyncio.Event().wait()
            return Answer()
        finally:
            cancelled.append(question.webhook.name)

    monkeypatch.setattr(commit, "ANSWERS_TIMEOUT_S", 0.05)
    here.admit(Asking(ask))
    with pytest.raises(Timeout, match="request did not complete within requested timeout - context deadline exceeded"):
        await here.loopback.create(target(here), body())
    assert cancelled == ["w0.example.com"]
    assert here.loopback.get(CONFIG_MAPS, HOME, "default", "one") is None


async def test_an_abandoned_planning_says_nothing(here: Cell) -> None:
    async def ask(question: Question) -> Answer:
        return Answer()

    here.admit(Asking(ask, 2))
    core = here.core
    call = commit_call(here)
    await core.commit(call, lambda call, view: plan_create(core.context(call, view, WriteOptions())))
    assert call.warnings == ["before", "planned"]


def commit_call(here: Cell) -> Call:
    call = make_call(target(here), "create", body(), "test")
    return replace(call, warnings=["before"])


def test_an_answer_counts_for_a_question_of_the_same_content_alone() -> None:
    async def ask(question: Question) -> Answer:
        raise AssertionError("asked")

    first = question(body())
    attempt = Attempt(answers={first.key: Answer()})
    assert answers([question(body())], ask, attempt) == [Answer()]
    for other in (question(body("two")), question(body(), 1), question(body(), generation=2)):
        with pytest.raises(Unasked):
            answers([other], ask, attempt)


async def test_a_plan_that_cannot_wait_has_no_answers() -> None:
    async def ask(question: Question) -> Answer:
        raise ApiError("asked")

    with pytest.raises(Unasked) as caught:
        answers([question(body())], ask, None)
    with pytest.raises(Unasked):
        await caught.value.fetch()


async def test_a_batch_asks_about_each_of_its_writes_and_lands_whole(here: Cell) -> None:
    asked: list[str] = []

    async def ask(question: Question) -> Answer:
        assert question.objects.obj is not None
        asked.append(question.objects.obj["metadata"]["name"])
        return Answer()

    here.admit(Asking(ask))
    batch = here.loopback.batch()
    for name in ("one", "two"):
        batch.create(target(here), body(name))
        assert batch.get(ObjectKey(CONFIG_MAPS, HOME, "default", name)) is not None
    assert asked == []
    await batch.submit()
    assert asked == ["one", "two"]
    stored = [here.loopback.get(CONFIG_MAPS, HOME, "default", name) for name in ("one", "two")]
    assert all(stored)


async def test_a_batch_that_is_refused_leaves_nothing(here: Cell) -> None:
    async def ask(question: Question) -> Answer:
        assert question.objects.obj is not None
        refused = question.objects.obj["metadata"]["name"] == "two"
        return Answer(denial=Forbidden("refused") if refused else None)

    here.admit(Asking(ask))
    batch = here.loopback.batch()
    for name in ("one", "two"):
        batch.create(target(here), body(name))
    with pytest.raises(Forbidden, match="refused"):
        await batch.submit()
    assert here.loopback.get(CONFIG_MAPS, HOME, "default", "one") is None


async def test_a_batch_that_is_overtaken_while_webhooks_are_asked_is_lost(here: Cell) -> None:
    async def ask(question: Question) -> Answer:
        await plain.create(target(here), body())
        return Answer()

    plain = Loopback(here.core, "other")
    here.admit(Asking(ask))
    batch = here.loopback.batch()
    batch.create(target(here), body())
    assert not await batch.try_submit()


class Standing:
    """Stands for configured admission that has something to say about some kind."""

    def __init__(self, *, is_empty: bool) -> None:
        self.is_empty = is_empty

    def mutate(self, review: Review, own: object) -> None: ...

    def go_on(self, review: Review) -> None: ...

    def validate(self, review: Review) -> None: ...

    def leave(self, review: Review) -> None: ...

    def may_cover(self, view: View, cluster: str, types: Iterable[ResourceType]) -> bool:
        return False

    def covers(self, view: View, cluster: str, kind: Kind, operation: str) -> bool:
        return False


@pytest.mark.parametrize(("is_empty", "plannings"), [(False, 2), (True, 3)])
async def test_what_a_planning_at_once_asks_is_asked_without_planning_first(
    here: Cell, is_empty: bool, plannings: int
) -> None:
    asked: list[Question] = []

    async def ask(question: Question) -> Answer:
        asked.append(question)
        return Answer()

    plugin = Asking(ask)
    core = replace(here.core, admission=Admission([plugin], Standing(is_empty=is_empty)))

    def planner(call: Call, view: View) -> PreparedWrite:
        return plan_create(core.context(call, view, WriteOptions()))

    call = core.first_attempt(replace(commit_call(here), obj=body("")))
    with here.store.snapshot() as snapshot:
        assert core.begin(call, planner, snapshot) is None
    reply = await core.commit(call, planner)
    assert (plugin.plannings, len(asked)) == (plannings, 1)
    made = decode(b"".join(reply.body) if not isinstance(reply.body, bytes) else reply.body)["metadata"]
    assert asked[0].objects.obj is not None
    assert [asked[0].objects.obj["metadata"][each] for each in ("uid", "name")] == [made["uid"], made["name"]]
    assert call.warnings == ["before", "planned"]
