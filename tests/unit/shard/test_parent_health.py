"""Readiness of an API worker follows the checks of the shard's main process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.machinery.apiserver.serving.health import CheckResult, Health, Notice, all_of
from atoll.machinery.storage.lmdb_store import open_store
from atoll.shard.parent_health import ParentHealth, encode
from harness.data.stores import store_options


@pytest.fixture
async def health(tmp_path: Path) -> AsyncIterator[Health]:
    """The checks of a process with a store."""
    store = open_store(store_options(tmp_path))
    health = Health(store)
    health.add("shutdown", lambda: None)
    yield health
    await store.close()


@pytest.fixture
def parent(health: Health) -> ParentHealth:
    """The parent of a worker with these checks, which has sent nothing."""
    parent = ParentHealth()
    parent.add_to(health)
    return parent


def readyz(health: Health) -> tuple[int, str]:
    reply = all_of("readyz", health.endpoints["readyz"], "verbose")
    assert isinstance(reply.body, bytes)
    return reply.status, reply.body.decode()


def test_a_worker_is_not_ready_before_the_first_line(parent: ParentHealth, health: Health) -> None:
    assert readyz(health)[0] == 500
    line = encode({})
    parent.receive(line[:1])
    assert readyz(health)[0] == 500
    parent.receive(line[1:])
    assert readyz(health)[0] == 200


def test_it_follows_the_last_line_and_lists_notices_without_failing(parent: ParentHealth, health: Health) -> None:
    failing = {"registration": CheckResult("no root shard", False), "store-space": CheckResult("full", True)}
    parent.receive(encode({}) + encode(failing))
    code, text = readyz(health)
    assert code == 500 and "[-]registration failed" in text and "[-]store-space failed (not counted)" in text
    parent.receive(encode({**failing, "registration": CheckResult(None, False)}))
    code, text = readyz(health)
    assert code == 200 and "[+]registration ok" in text and "[-]store-space failed (not counted)" in text
    assert all_of("livez", health.endpoints["livez"], "").status == 200


def test_its_own_checks_stay(parent: ParentHealth, health: Health) -> None:
    health.add("shutdown", lambda: "process is shutting down")
    parent.receive(encode({"shutdown": CheckResult(None, False)}))
    assert readyz(health)[0] == 500


def test_results_of_a_process_are_those_of_its_added_checks(health: Health) -> None:
    health.add("store-space", Notice(lambda: "full"))
    healthy = CheckResult(None, False)
    assert health.results() == {"shutdown": healthy, "store-space": CheckResult("full", True)}
