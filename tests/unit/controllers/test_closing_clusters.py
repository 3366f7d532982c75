"""Controllers create nothing in a logical cluster that is being deleted or moves to another shard."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.controllers.exports.apiexports import ExportController
from atoll.machinery.meta.types import API_EXPORTS, LOGICAL_CLUSTERS, NAMESPACES, SECRETS
from atoll.machinery.meta.wellknown import MIGRATING
from atoll.machinery.storage.contract import GateState, Scope
from harness.clients.exports import export
from harness.servers.in_process.minimal_shard import Cell, cell

HOME = "provider"


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Cell]:
    async with cell(tmp_path) as made:
        await made.cluster(HOME)
        await made.put(API_EXPORTS, HOME, export("shapes"))
        yield made


async def delete(here: Cell) -> None:
    await here.delete(LOGICAL_CLUSTERS, HOME, "cluster")


async def move(here: Cell) -> None:
    metadata = here.found(LOGICAL_CLUSTERS, HOME, "cluster")["metadata"]
    annotations = {**metadata["annotations"], MIGRATING: "true"}
    await here.change(LOGICAL_CLUSTERS, HOME, "cluster", metadata={**metadata, "annotations": annotations})


def made(here: Cell) -> list[str]:
    """The names of Secrets and Namespaces."""
    found = [*here.loopback.each(Scope(SECRETS, HOME)), *here.loopback.each(Scope(NAMESPACES, HOME))]
    return [each["metadata"]["name"] for each in found]


async def test_an_export_gets_an_identity(here: Cell) -> None:
    await ExportController(here.loopback).reconcile((HOME, "shapes"))
    assert sorted(made(here)) == ["kcp-system", "shapes"]


@pytest.mark.parametrize(("change", "state"), [(delete, GateState.DELETING), (move, GateState.MOVING)])
async def test_an_export_of_a_cluster_that_closes_gets_none(here: Cell, change: object, state: GateState) -> None:
    await change(here)  # type: ignore[operator]
    with here.store.snapshot() as snapshot:
        assert snapshot.gate(HOME).state is state
    await ExportController(here.loopback).reconcile((HOME, "shapes"))
    assert made(here) == []
