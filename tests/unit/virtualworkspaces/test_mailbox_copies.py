"""Whole associated objects come up for a placed one of which a collector asks, and what came up never goes down."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.apiserver.call.requestinfo import parse
from atoll.machinery.edge.names import ASSOCIATED_WITH, UPSYNCED
from atoll.machinery.kinds.core.secrets import SECRETS
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import Forbidden
from atoll.machinery.storage.lmdb_store import open_store
from atoll.virtualworkspaces.edge.carried import CarriedReader, Mailbox
from atoll.virtualworkspaces.edge.mailbox_rules import MailboxRules
from atoll.virtualworkspaces.edge.upsync_use import UpsyncUse
from harness.data.stores import store_options
from unit.virtualworkspaces.test_downsync_rows import BOX, CATALOG, CONFIGS, World

OWNER = "ConfigMap/default/owner"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    opened = open_store(store_options(tmp_path))
    yield World(opened)
    await opened.close()


async def ask(world: World, **rule: object) -> None:
    """Have a SyncerConfig list one ConfigMap, and all Secrets, and ask for Secrets that belong to ConfigMaps."""
    places = [{"namespace": "default", "names": ["owner"]}]
    query = {"source": "", "target": [{"resources": ["configmaps"]}], "objects": [{"resource": "secrets", **rule}]}
    entries = [{"group": "", "resource": "configmaps", "apiVersion": "v1", "objectsByNamespace": places}]
    secrets = {"namespaces": ["default"], "resources": [{"group": "", "resource": "secrets", "apiVersion": "v1"}]}
    spec = {"namespacedObjects": entries, "associated": [query], "namespaceScope": secrets}
    await world.write(CONFIGS[0], "", "the-one", {"spec": spec})


def is_taken(world: World, of: str, resource: str = "secrets") -> bool:
    """Whether a syncer may make an object that belongs to another one."""
    info = parse("POST", f"/clusters/{BOX}/api/v1/namespaces/default/{resource}".encode())
    kind = CATALOG.by_resource["", resource]
    rules = MailboxRules(Mailbox(BOX, CATALOG), CarriedReader(), info, kind, UpsyncUse())
    annotations = {UPSYNCED: f"{kind.kind}/default/copy", ASSOCIATED_WITH: of}
    metadata = {"name": "copy", "namespace": "default", "annotations": annotations}
    obj: Object = {"apiVersion": "v1", "kind": kind.kind, "metadata": metadata}
    with world.store.snapshot() as view:
        try:
            rules.check(view, obj, None)
        except Forbidden:
            return False
        return True


async def test_a_copy_is_taken_for_what_goes_down_where_a_collector_asks_for_copies(world: World) -> None:
    await ask(world)
    assert not is_taken(world, OWNER), "a digest is asked for"
    await ask(world, copies=True)
    assert is_taken(world, OWNER)
    assert not is_taken(world, OWNER, "configmaps"), "another kind"
    for of in (
        "ConfigMap/default/other",
        "ConfigMap/else/owner",
        "Secret/default/owner",
        "Boat/default/owner",
        "x",
        "",
    ):
        assert not is_taken(world, of), of


async def test_what_came_up_is_not_wanted_at_the_edge_whatever_is_listed(world: World) -> None:
    await ask(world)
    await world.write(SECRETS, "default", "placed", {})
    annotations: dict[str, Any] = {UPSYNCED: "Secret/default/up"}
    metadata = {"name": "up", "namespace": "default", "uid": "u", "annotations": annotations}
    await world.write(SECRETS, "default", "up", {"metadata": metadata})
    _, found = world.listed()
    assert [name for name in found if name.startswith("secrets.")] == ["secrets.:default:placed"]
