"""Labelling of claimed objects continues after a restart; finished labelling is not repeated."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.meta.status import Conflict
from atoll.machinery.meta.types import API_BINDINGS, API_EXPORTS, CONFIG_MAPS
from harness.clients.api import TIMEOUT_S, configmap
from harness.oracles.claim_labels import claim_pair
from harness.servers.in_process.shard import InsideShard, shard_inside

Object = dict[str, Any]
COUNT = 300
CLAIM = {"group": "", "resource": "configmaps", "verbs": ["*"]}


def carrying(shard: InsideShard, pair: tuple[str, str]) -> int:
    """The number of ConfigMaps with a label, without those of the system."""
    with shard.app.store.snapshot() as snapshot:
        return sum(1 for key in snapshot.labelled(*pair, CONFIG_MAPS) if key.name.startswith("m-"))


async def half_done(shard: InsideShard, pair: tuple[str, str], *, growing: bool) -> None:
    """Return once some objects have changed, but not all."""
    async with asyncio.timeout(TIMEOUT_S):
        while not (carrying(shard, pair) > 0 if growing else carrying(shard, pair) < COUNT):  # noqa: ASYNC110 - no event
            await asyncio.sleep(0)


async def prepared(shard: InsideShard) -> tuple[str, str]:
    """A provider's and a consumer's cluster, with objects to be claimed."""
    provider, consumer = await shard.workspace("provider"), await shard.workspace("consumer")
    spec = {"permissionClaims": [CLAIM]}
    body = {"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": "one"}, "spec": spec}
    await shard.loopback.create(shard.target(API_EXPORTS, provider, "", "one"), body)
    for number in range(COUNT):
        target = shard.target(CONFIG_MAPS, consumer, "default", f"m-{number}")
        await shard.loopback.create(target, configmap(target.name))
    await shard.until_idle()
    return provider, consumer


async def grant(shard: InsideShard, provider: str, consumer: str, state: str) -> None:
    granted = {**CLAIM, "selector": {"matchAll": True}, "state": state}
    target = shard.target(API_BINDINGS, consumer, "", "one")
    spec = {"reference": {"export": {"path": provider, "name": "one"}}, "permissionClaims": [granted]}
    async with asyncio.timeout(TIMEOUT_S):
        while (old := shard.loopback.get(API_BINDINGS, consumer, "", "one")) is not None:
            try:
                await shard.loopback.update(target, {**old, "spec": spec})
            except Conflict:
                # A controller wrote the status in between.
                continue
            return
    body = {"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "one"}, "spec": spec}
    await shard.loopback.create(target, body)


@pytest.mark.long
@pytest.mark.parametrize("state", ["Accepted", "Rejected"])
async def test_what_is_interrupted_is_finished_after_a_restart(tmp_path: Path, state: str) -> None:
    async with shard_inside(tmp_path) as shard:
        provider, consumer = await prepared(shard)
        pair = claim_pair(provider, "one", "", "configmaps")
        await grant(shard, provider, consumer, "Accepted")
        if state == "Rejected":
            await shard.until_idle()
            assert carrying(shard, pair) == COUNT
            await grant(shard, provider, consumer, state)
        await half_done(shard, pair, growing=state == "Accepted")
    async with shard_inside(tmp_path) as shard:
        await shard.until_idle()
        assert carrying(shard, pair) == (COUNT if state == "Accepted" else 0)
        binding = shard.loopback.get(API_BINDINGS, consumer, "", "one")
        assert binding is not None
        assert bool(binding["status"].get("appliedPermissionClaims")) is (state == "Accepted")


@pytest.mark.long
async def test_what_was_done_is_not_written_again_after_a_restart(tmp_path: Path) -> None:
    async with shard_inside(tmp_path) as shard:
        provider, consumer = await prepared(shard)
        await grant(shard, provider, consumer, "Accepted")
        await shard.until_idle()
        with shard.app.store.snapshot() as snapshot:
            maps, bindings = snapshot.last(CONFIG_MAPS, consumer), snapshot.last(API_BINDINGS, consumer)
    async with shard_inside(tmp_path) as shard:
        await shard.until_idle()
        with shard.app.store.snapshot() as snapshot:
            assert (snapshot.last(CONFIG_MAPS, consumer), snapshot.last(API_BINDINGS, consumer)) == (maps, bindings)


@pytest.mark.long
async def test_what_is_withdrawn_while_objects_are_labelled_leaves_no_label(tmp_path: Path) -> None:
    async with shard_inside(tmp_path) as shard:
        provider, consumer = await prepared(shard)
        pair = claim_pair(provider, "one", "", "configmaps")
        for _ in range(3):
            await grant(shard, provider, consumer, "Accepted")
            await half_done(shard, pair, growing=True)
            await grant(shard, provider, consumer, "Rejected")
            await shard.until_idle()
            assert carrying(shard, pair) == 0
            binding = shard.loopback.get(API_BINDINGS, consumer, "", "one")
            assert binding is not None and "appliedPermissionClaims" not in binding["status"]
            said = {each["type"]: each["status"] for each in binding["status"]["conditions"]}
            assert said["PermissionClaimsApplied"] == "True"


@pytest.mark.long
async def test_a_binding_that_goes_while_objects_are_labelled_leaves_no_label(tmp_path: Path) -> None:
    async with shard_inside(tmp_path) as shard:
        provider, consumer = await prepared(shard)
        pair = claim_pair(provider, "one", "", "configmaps")
        await grant(shard, provider, consumer, "Accepted")
        await half_done(shard, pair, growing=True)
        await shard.loopback.delete(shard.target(API_BINDINGS, consumer, "", "one"), DeleteOptions())
        await shard.until_idle()
        assert shard.loopback.get(API_BINDINGS, consumer, "", "one") is None and carrying(shard, pair) == 0
