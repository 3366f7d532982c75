"""Which log entries of bindings enqueue the labelling of claimed objects."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.controllers.bindings.permission_claims import Binding, PermissionClaimsController
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object, encode
from atoll.machinery.meta.types import API_BINDINGS
from atoll.machinery.storage.contract import LogEntry, Operation
from harness.servers.in_process.minimal_shard import Cell, cell

CLUSTER = "consumer"
APPLIED = {"status": "True", "type": "PermissionClaimsApplied"}


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Cell]:
    async with cell(tmp_path) as made:
        yield made


def enqueues(here: Cell, metadata: Object, conditions: list[Object]) -> bool:
    controller = PermissionClaimsController(here.loopback, here.facts, here.kind(API_BINDINGS))
    binding = {
        "metadata": {"name": "one", "annotations": {"kcp.io/cluster": CLUSTER}, **metadata},
        "status": {"conditions": conditions},
    }
    key = ObjectKey(API_BINDINGS, CLUSTER, "", "one")
    entry = LogEntry(2, Operation.MODIFIED, key, encode(binding)[0], False, 0, 1, 1)
    return Binding(CLUSTER, "one") in list(controller.keys(entry))


async def test_a_binding_without_claims_whose_condition_is_true_is_not_enqueued(here: Cell) -> None:
    assert not enqueues(here, {}, [{"lastTransitionTime": "2026-01-01T00:00:00Z", **APPLIED}])


@pytest.mark.parametrize("field", ["annotations", "labels"])
async def test_metadata_that_reads_like_the_condition_does_not_stop_labelling(here: Cell, field: str) -> None:
    unfinished = {**APPLIED, "status": "False", "reason": "Applying"}
    assert enqueues(here, {field: {"kcp.io/cluster": CLUSTER, **APPLIED}}, [unfinished])
    assert enqueues(here, {field: {"kcp.io/cluster": CLUSTER, **APPLIED}}, [])
