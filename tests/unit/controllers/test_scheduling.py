"""Workspaces whose bindings have a write conflict between plan and submit are scheduled, with correct content."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from atoll.machinery.apiserver.writing.batch import Batch
from atoll.machinery.kcp.apis import bound_crds
from atoll.machinery.meta.names import ROOT, SYSTEM_BOUND_CRDS
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.types import API_BINDINGS, API_EXPORTS, API_RESOURCE_SCHEMAS, CRDS
from atoll.machinery.storage.contract import Scope
from atoll.tenancy.bound_definitions import target_of
from harness.clients.api import TIMEOUT_S
from harness.clients.exports import export, resource_of, schema
from harness.servers.in_process.minimal_shard import bound
from harness.servers.in_process.shard import InsideShard, shard_inside

SQUARES, CIRCLES = schema("squares"), schema("circles")


@pytest.fixture
async def shard(tmp_path: Path) -> AsyncIterator[InsideShard]:
    async with shard_inside(tmp_path) as made:
        for each in (SQUARES, CIRCLES):
            await made.loopback.create(made.target(API_RESOURCE_SCHEMAS, ROOT, "", each["metadata"]["name"]), each)
        await made.loopback.create(made.target(API_EXPORTS, ROOT, "", "shapes"), export("shapes", SQUARES))
        spec = {
            "extend": {"with": [{"name": "universal", "path": "root"}]},
            "defaultAPIBindings": [{"path": "root", "export": "shapes"}],
        }
        kind = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType"}
        target = made.target(made.app.identities.workspace_types, ROOT, "", "shaped")
        await made.loopback.create(target, {**kind, "metadata": {"name": "shaped"}, "spec": spec})
        await made.until_idle()
        yield made


async def made_during(
    shard: InsideShard, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], Awaitable[None]]
) -> Object:
    """The default binding of a workspace whose batch meets a conflicting write."""
    submit, met = Batch.submit, list[bool]()

    async def late(batch: Batch) -> Sequence[int]:
        if batch.manager == "kcp-workspace" and not met:
            met.append(True)
            await meanwhile()
        return await submit(batch)

    monkeypatch.setattr(Batch, "submit", late)
    cluster = await shard.workspace("late", type={"name": "shaped", "path": "root"})
    assert met
    return default_binding(shard, cluster)


def default_binding(shard: InsideShard, cluster: str) -> Object:
    found = shard.loopback.each(Scope(API_BINDINGS, cluster))
    return next(each for each in found if each["spec"]["reference"]["export"]["name"] == "shapes")


async def test_a_bound_definition_that_changed_keeps_no_workspace_from_being_made(
    shard: InsideShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shard.workspace("first", type={"name": "shaped", "path": "root"})
    made = shard.loopback.get(API_RESOURCE_SCHEMAS, ROOT, "", SQUARES["metadata"]["name"])
    assert made is not None
    uid = made["metadata"]["uid"]

    async def through_another() -> None:
        crd = shard.loopback.get(CRDS, SYSTEM_BOUND_CRDS, "", uid)
        assert crd is not None
        await shard.loopback.update(target_of(uid), bound_crds.with_export(crd, "another"), whole=True)

    binding = await made_during(shard, monkeypatch, through_another)
    assert binding["status"]["phase"] == "Bound"


async def test_an_export_that_changed_is_bound_as_it_is_now(
    shard: InsideShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await shard.workspace("first", type={"name": "shaped", "path": "root"})

    async def more() -> None:
        old = shard.loopback.get(API_EXPORTS, ROOT, "", "shapes")
        assert old is not None
        spec = {**old["spec"], "resources": [resource_of(SQUARES), resource_of(CIRCLES)]}
        await shard.loopback.update(shard.target(API_EXPORTS, ROOT, "", "shapes"), {**old, "spec": spec})
        # The consumers of the export were reconciled before the workspace is written.
        async with asyncio.timeout(TIMEOUT_S):
            while bound(default_binding(shard, first)) != ["squares", "circles"]:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.001)

    binding = await made_during(shard, monkeypatch, more)
    assert bound(binding) == ["squares", "circles"]
