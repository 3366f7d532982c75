"""Writes that wait for webhooks go on where they stopped, in the state of then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from atoll.machinery.apiserver.admission.chain import Admission, Plugin, Review
from atoll.machinery.apiserver.admission.configured.configured_admission import ConfiguredAdmission, Evaluators
from atoll.machinery.apiserver.admission.configured.questions import Answer, Ask, Question
from atoll.machinery.apiserver.admission.configured.registry import Registry
from atoll.machinery.apiserver.call.call import Call, View
from atoll.machinery.apiserver.call.options import WriteOptions
from atoll.machinery.apiserver.rest.create import plan_create
from atoll.machinery.apiserver.rest.write import PreparedWrite
from atoll.machinery.apiserver.writing.commit import LARGE_BODY
from atoll.machinery.apiserver.writing.target import Target, make_call
from atoll.machinery.meta import types
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object, decode, encode_json, fresh
from atoll.machinery.meta.status import ApiError, Forbidden, InternalError
from harness.servers.in_process.minimal_shard import Cell, cell

HOME, OTHER = "home", "other"
MANY = 50
RULE = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
CLIENT = {"clientConfig": {"url": "https://127.0.0.1:1/"}, "sideEffects": "None", "admissionReviewVersions": ["v1"]}


class Counting(Plugin):
    """Counts plannings, and refuses new objects once an object `closed` is there."""

    resources = (("", "configmaps"),)

    def __init__(self) -> None:
        self.plannings = self.validations = 0
        #: The clusters of validations, in order.
        self.seen: list[str] = []

    def mutate(self, review: Review) -> None:
        self.plannings += 1
        review.call.warnings.append("planned")

    def validate(self, review: Review) -> None:
        self.validations += 1
        self.seen.append(review.call.cluster)
        if review.view.get(ObjectKey(types.CONFIG_MAPS, HOME, "default", "closed")) is not None:
            raise Forbidden("closed")


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Cell]:
    async with cell(tmp_path) as made:
        await made.cluster(HOME)
        await made.put(types.NAMESPACES, HOME, {"metadata": {"name": "default"}})
        yield made


async def configured(here: Cell, ask: Ask, *, mutating: int = 0, validating: int = 0) -> Counting:
    """Configure so many webhooks, and enable admission."""
    for type, count in ((types.MUTATING_WEBHOOKS, mutating), (types.VALIDATING_WEBHOOKS, validating)):
        webhooks = [{"name": f"w{index}.example.com", "rules": [RULE], **CLIENT} for index in range(count)]
        if webhooks:
            await here.put(type, HOME, {"metadata": {"name": "hooks"}, "webhooks": webhooks})
    plugin = Counting()
    admission = ConfiguredAdmission(Registry(here.core.catalogs), _no_evaluators, ask)
    admission.is_empty = False
    here.core = replace(here.core, admission=Admission([plugin], admission))
    return plugin


def _no_evaluators() -> Evaluators:
    raise AssertionError("nothing has expressions")


class Created(NamedTuple):
    """A new object as it was answered, and the warnings for its client."""

    obj: Object
    warnings: list[str]


async def created(here: Cell, *, at_once: bool = True, generated: bool = False) -> Created:
    """Create an object as a request does, in its own snapshot first, or as a controller does."""
    metadata = {"generateName": "made-"} if generated else {"name": "one"}
    target = Target(here.kind(types.CONFIG_MAPS), HOME, "default")
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    call = replace(make_call(target, "create", obj, "test"), warnings=["before"])

    def planner(call: Call, view: View) -> PreparedWrite:
        return plan_create(here.core.context(call, view, WriteOptions()))

    first = here.core.first_attempt(call) if at_once else call
    if at_once:
        with here.store.snapshot() as snapshot:
            assert here.core.begin(first, planner, snapshot) is None
    reply = await here.core.commit(first, planner)
    return Created(decode(reply.body if isinstance(reply.body, bytes) else b"".join(reply.body)), call.warnings)


async def accept(question: Question) -> Answer:
    return Answer(warnings=[question.webhook.name])


async def add(question: Question) -> Answer:
    """Let mutating webhooks add the number of what they see."""
    if not question.webhook.mutating:
        return Answer()
    changed = fresh(question.objects.obj or {})
    data = changed.setdefault("data", {})
    data[f"w{question.webhook.index}"] = str(len(data))
    return Answer(obj=changed)


@pytest.mark.parametrize("at_once", [True, False], ids=["request", "controller"])
async def test_a_write_that_webhooks_only_validate_is_planned_once(here: Cell, at_once: bool) -> None:
    plugin = await configured(here, accept, validating=2)
    made = await created(here, at_once=at_once)
    assert (plugin.plannings, plugin.validations) == (1, 1)
    assert made.warnings == ["before", "planned", "w0.example.com", "w1.example.com"]
    stored = here.loopback.get(types.CONFIG_MAPS, HOME, "default", "one")
    assert stored == made.obj


@pytest.mark.parametrize("at_once", [True, False], ids=["request", "controller"])
async def test_a_mutation_goes_on_behind_the_webhook_that_answered(here: Cell, at_once: bool) -> None:
    asked: list[tuple[bool, Object]] = []

    async def ask(question: Question) -> Answer:
        asked.append((question.webhook.mutating, dict((question.objects.obj or {}).get("data") or {})))
        return await add(question)

    plugin = await configured(here, ask, mutating=3, validating=1)
    made = await created(here, at_once=at_once, generated=True)
    final = {"w0": "0", "w1": "1", "w2": "2"}
    assert asked == [(True, {}), (True, {"w0": "0"}), (True, {"w0": "0", "w1": "1"}), (False, final)]
    assert made.obj["data"] == final
    # Once, and once more behind the first round and the second, as something changed.
    assert plugin.plannings == 3


async def test_what_is_planned_in_slices_goes_to_every_webhook(here: Cell) -> None:
    asked: list[str] = []

    async def ask(question: Question) -> Answer:
        asked.append(question.webhook.name)
        return Answer()

    await configured(here, ask, mutating=3, validating=1)
    target = Target(here.kind(types.CONFIG_MAPS), HOME, "default")
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large"}, "data": {"x": "x" * LARGE_BODY}}
    call = replace(make_call(target, "create", obj, "test"), body=encode_json(obj))
    await here.core.commit(call, lambda call, view: plan_create(here.core.context(call, view, WriteOptions())))
    assert asked == ["w0.example.com", "w1.example.com", "w2.example.com", "w0.example.com"]


async def test_a_mutation_that_was_cut_short_never_counts_as_ended(here: Cell) -> None:
    await configured(here, accept, mutating=1)
    configured_admission = here.core.admission.configured
    assert isinstance(configured_admission, ConfiguredAdmission)
    target = Target(here.kind(types.CONFIG_MAPS), HOME, "default")
    call = make_call(target, "create", {}, "test")
    with here.store.snapshot() as snapshot:
        review = Review(
            call=call, group_resource=("", "configmaps"), operation="CREATE", obj={}, old=None, view=snapshot
        )
        review.pending = iter(())
        with pytest.raises(InternalError, match="a mutation was cut short"):
            configured_admission.go_on(review)


async def test_what_webhooks_leave_as_it_is_is_planned_once(here: Cell) -> None:
    plugin = await configured(here, accept, mutating=2, validating=1)
    await created(here)
    assert (plugin.plannings, plugin.validations) == (1, 1)


async def test_the_servers_own_checks_see_the_state_after_the_answers(here: Cell) -> None:
    other = here.loopback

    async def ask(question: Question) -> Answer:
        await other.create(Target(here.kind(types.CONFIG_MAPS), HOME, "default"), {"metadata": {"name": "closed"}})
        return Answer()

    await configured(here, ask, validating=1)
    with pytest.raises(Forbidden, match="closed"):
        await created(here)


async def test_what_another_writer_changed_meanwhile_is_planned_and_asked_anew(here: Cell) -> None:
    other, asked = here.loopback, list[str]()
    target = Target(here.kind(types.CONFIG_MAPS), HOME, "default")

    async def ask(question: Question) -> Answer:
        metadata = (question.objects.obj or {})["metadata"]
        asked.append(metadata["name"])
        if len(asked) == 1:
            await other.create(target, {"metadata": {"name": metadata["name"]}})
        return Answer(warnings=[f"answer {len(asked)}"])

    plugin = await configured(here, ask, validating=1)
    made = await created(here, generated=True)
    assert (plugin.plannings, len(set(asked))) == (2, 2)
    assert made.obj["metadata"]["name"] == asked[1]
    assert made.warnings == ["before", "planned", "answer 2"]


async def test_a_namespace_that_went_meanwhile_takes_no_object(here: Cell) -> None:
    async def ask(question: Question) -> Answer:
        await here.delete(types.NAMESPACES, HOME, "default")
        return Answer()

    await configured(here, ask, validating=1)
    with pytest.raises(ApiError):
        await created(here)
    assert here.loopback.get(types.CONFIG_MAPS, HOME, "default", "one") is None


async def test_a_denial_after_a_continued_plan_is_told_with_its_warnings(here: Cell) -> None:
    async def ask(question: Question) -> Answer:
        return Answer(denial=Forbidden("no"), warnings=["because"])

    await configured(here, ask, mutating=1)
    target = Target(here.kind(types.CONFIG_MAPS), HOME, "default")
    call = replace(make_call(target, "create", {"metadata": {"name": "one"}}, "test"), warnings=[])
    with pytest.raises(Forbidden, match="no"):
        await here.core.commit(call, lambda call, view: plan_create(here.core.context(call, view, WriteOptions())))
    assert call.warnings == ["planned", "because"]


async def test_many_answers_at_once_do_not_hold_up_another_workspace(here: Cell) -> None:
    await here.cluster(OTHER)
    await here.put(types.NAMESPACES, OTHER, {"metadata": {"name": "default"}})
    answered = asyncio.Barrier(MANY + 1)

    async def ask(question: Question) -> Answer:
        await answered.wait()
        return Answer()

    plugin = await configured(here, ask, validating=1)
    many = [asyncio.create_task(create_in(here, HOME, f"n{index}")) for index in range(MANY)]
    await answered.wait()
    other = asyncio.create_task(create_in(here, OTHER, "one"))
    await asyncio.gather(other, *many)
    assert plugin.seen.index(OTHER) <= 5
    assert len(plugin.seen) == MANY + 1


async def test_many_requests_that_ask_do_not_hold_up_another_workspace(here: Cell) -> None:
    await here.cluster(OTHER)
    await here.put(types.NAMESPACES, OTHER, {"metadata": {"name": "default"}})

    async def ask(question: Question) -> Answer:
        plugin.seen.append("asked")
        return Answer()

    plugin = await configured(here, ask, validating=1)
    many = [asyncio.create_task(created(here, generated=True)) for _ in range(MANY)]
    await asyncio.gather(*many, asyncio.create_task(create_in(here, OTHER, "one")))
    assert plugin.seen.index(OTHER) <= 5
    assert len(plugin.seen) == 2 * MANY + 1


async def create_in(here: Cell, cluster: str, name: str) -> None:
    target = Target(here.kind(types.CONFIG_MAPS), cluster, "default")
    call = make_call(target, "create", {"metadata": {"name": name}}, "test")
    await here.core.commit(call, lambda call, view: plan_create(here.core.context(call, view, WriteOptions())))
