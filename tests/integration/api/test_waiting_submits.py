"""Writes that wait for the store: their bound in time and number, and clients that do not wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import force_setattr

from atoll.machinery.apiserver.serving import in_flight
from atoll.machinery.apiserver.writing.commit import LARGE_BODY, WriteService
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.types import CONFIG_MAPS
from atoll.machinery.process.shared_timeout import SharedTimeout
from atoll.machinery.storage.contract import Guard, Mutation, Put
from harness.clients.raw_http import until
from harness.clients.tenants import token_file
from harness.servers.in_process.requests import InProcessClient
from harness.servers.in_process.shard import shard_inside

MAPS = "/api/v1/namespaces/default/configmaps"


def configmap(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


class StuckStore:
    """An administrator's requests to root, whose ConfigMaps wait in the store until `release`."""

    def __init__(self, admin: InProcessClient, other: InProcessClient, service: WriteService) -> None:
        self.admin, self.other, self._service = admin, other, service
        self.waiting: list[asyncio.Future[list[int]]] = []

    async def create(self, name: str, **data: str) -> tuple[int, str]:
        code, body = await self.admin.send("POST", MAPS, {**configmap(name), "data": data})
        return code, str(body.get("message", ""))

    async def started(self, count: int) -> list[asyncio.Task[tuple[int, str]]]:
        tasks = [asyncio.create_task(self.create(f"c{number}")) for number in range(count)]
        await until(lambda: len(self.waiting) == count)
        return tasks

    def limit(self, limit_s: float) -> None:
        force_setattr(self._service, "submit_limit", SharedTimeout(limit_s))

    def release(self) -> None:
        for each in self.waiting:
            each.set_result([1])


@pytest.fixture
async def stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[StuckStore]:
    _, tokens = token_file(tmp_path)
    async with shard_inside(tmp_path, tokens=tokens) as shard:
        pipeline = shard.app.pipeline()
        admin, other = (InProcessClient(pipeline, cluster, "master-token") for cluster in ("root", "system:admin"))
        assert (await admin.send("POST", "/api/v1/namespaces", {"metadata": {"name": "default"}}))[0] in {201, 409}
        await shard.until_idle()
        found, queue = StuckStore(admin, other, shard.app.core), shard.app.store.queue

        def wait(mutations: Sequence[Mutation], guards: Sequence[Guard] = ()) -> asyncio.Future[list[int]]:
            first = mutations[0]
            if not isinstance(first, Put) or first.key.type != CONFIG_MAPS or first.key.name[0] != "c":
                return queue(mutations, guards)
            found.waiting.append(asyncio.get_running_loop().create_future())
            return found.waiting[-1]

        monkeypatch.setattr(shard.app.store, "queue", wait)
        yield found


async def test_a_write_that_the_store_does_not_answer_has_an_unknown_outcome(stuck: StuckStore) -> None:
    stuck.limit(0.05)
    code, message = await stuck.create("c")
    assert code == 504
    assert message.endswith("outcome unknown")
    assert stuck.waiting[0].cancelled()


async def test_beyond_the_limit_of_writes_in_flight_the_next_is_refused_and_reads_are_not(
    stuck: StuckStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "MAX_MUTATING", 3)
    first = await stuck.started(3)
    for write in (("POST", MAPS, configmap("d")), ("DELETE", f"{MAPS}/d"), ("DELETE", MAPS)):
        assert (await stuck.admin.send(*write))[0] == 429
    assert (await stuck.admin.send("GET", MAPS))[0] == 200
    stuck.release()
    assert [await each for each in first] == [(201, "")] * 3
    assert (await stuck.admin.send("POST", MAPS, configmap("d")))[0] == 201


async def test_writes_whose_submit_was_given_up_are_not_counted_any_more(
    stuck: StuckStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "MAX_MUTATING", 2)
    stuck.limit(0.05)
    assert [(await each)[0] for each in await stuck.started(2)] == [504, 504]
    stuck.limit(20)
    assert (await stuck.admin.send("POST", MAPS, configmap("d")))[0] == 201


async def test_one_workspace_does_not_take_the_places_of_all_others(
    stuck: StuckStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "MAX_TASKS", 2)
    large = "x" * LARGE_BODY
    # Those that come in one turn of the loop are counted like others.
    *first, third = [asyncio.create_task(stuck.create(f"c{number}", large=large)) for number in range(3)]
    await until(lambda: third.done() and len(stuck.waiting) == 2)
    assert third.result()[0] == 429
    assert (await stuck.create("d", large=large))[0] == 429
    namespace = {"metadata": {"name": "there", "annotations": {"large": large}}}
    assert (await stuck.other.send("POST", "/api/v1/namespaces", namespace))[0] == 201
    stuck.release()
    assert [await each for each in first] == [(201, "")] * 2
    assert (await stuck.create("d", large=large))[0] == 201
