"""Root's schemas of Kubernetes' kinds are written once somebody binds them, and the definitions before the binding."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from atoll.controllers.exports.kubernetes_schemas import KubernetesSchemas
from atoll.controllers.shard_calls import ShardCaller
from atoll.machinery.kcp.apis.kubernetes_export import EXPORT, EXPORT_KEY, REQUESTED, offered, schema_keys
from atoll.machinery.kcp.manifest import ObjectStamp
from atoll.machinery.meta import hashes
from atoll.machinery.meta.names import ROOT, SYSTEM_BOUND_CRDS, ResourceType
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.types import API_BINDINGS, API_EXPORTS, API_RESOURCE_SCHEMAS, CRDS
from atoll.machinery.meta.uids import new_uid
from atoll.machinery.storage.contract import Mutation, Put, Scope
from atoll.tenancy import bound_definitions
from harness.clients.api import crd
from harness.servers.in_process.minimal_shard import Cell, bound, cell

NOW = "2026-01-01T00:00:00Z"
_BOUND_CRDS = Scope(CRDS, SYSTEM_BOUND_CRDS)
NAMES = [key.name for key in schema_keys()]


class Calls:
    """Calls of another shard, which are noted and not sent."""

    def __init__(self) -> None:
        self.called: list[str] = []

    async def call(self, shard: str, ask: Callable[[Any], Awaitable[Any]], identity: str = "") -> None:
        self.called.append(shard)


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Cell]:
    async with cell(tmp_path) as made:
        await made.cluster("consumer")
        yield made


def controller(here: Cell, calls: Calls | None = None) -> KubernetesSchemas:
    stamp = ObjectStamp(ROOT, ROOT, NOW, lambda _: new_uid())
    made = KubernetesSchemas(here.loopback, stamp, cast(ShardCaller, calls))
    here.controllers.append(made)
    return made


async def offer(here: Cell, **annotations: str) -> None:
    """Root with its export."""
    await here.cluster(ROOT)
    body: Object = {
        "apiVersion": "apis.kcp.io/v1alpha2",
        "kind": "APIExport",
        "metadata": {"name": EXPORT, "annotations": annotations},
        "spec": {"resources": offered()},
        "status": {"identityHash": hashes.identity_hash(b"key")},
    }
    await here.put(API_EXPORTS, ROOT, body)


def schemas(here: Cell) -> list[str]:
    return [each["metadata"]["name"] for each in here.loopback.each(Scope(API_RESOURCE_SCHEMAS, ROOT))]


def written_of(here: Cell, monkeypatch: pytest.MonkeyPatch, type: ResourceType, cluster: str = "") -> list[int]:
    """The number of writes of a type, of a cluster if it is given, in each submit from now on."""
    counts: list[int] = []
    submit = here.store.submit

    async def noted(mutations: Sequence[Mutation], *rest: Any) -> Sequence[int]:
        keys = [each.key for each in mutations if isinstance(each, Put)]
        counts.append(sum(key.type == type and cluster in ("", key.cluster) for key in keys))
        return await submit(mutations, *rest)

    monkeypatch.setattr(here.store, "submit", noted)
    return counts


async def test_nothing_is_written_while_nobody_binds_the_export(here: Cell) -> None:
    await offer(here)
    written = controller(here)
    await here.settle()
    await written.reconcile(EXPORT_KEY)
    assert schemas(here) == []


async def test_the_first_binding_has_them_written_and_is_bound(here: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written a few times, not for each of them, and all are as a check of their kind would leave them."""
    await offer(here)
    controller(here)
    await here.bind("consumer", ROOT, EXPORT)
    written = written_of(here, monkeypatch, API_BINDINGS)
    await here.settle()
    assert sorted(schemas(here)) == sorted(NAMES)
    binding = here.found(API_BINDINGS, "consumer", EXPORT)
    assert binding["status"]["phase"] == "Bound"
    assert len(bound(binding)) == len(NAMES)
    assert sum(written) <= 4
    for type, scope in ((API_RESOURCE_SCHEMAS, Scope(API_RESOURCE_SCHEMAS, ROOT)), (CRDS, _BOUND_CRDS)):
        schema, found = here.loopback.core.catalogs.builtin(type).schema, list(here.loopback.each(scope))
        assert schema is not None
        assert len(found) == len(NAMES)
        for made in found:
            checked = copy.deepcopy(made)
            schema.normalize(checked)
            assert checked == made
            assert schema.validate(checked) == []


async def test_a_binding_of_another_shard_has_them_written_too(here: Cell) -> None:
    await offer(here, **{REQUESTED: "true"})
    controller(here)
    await here.settle()
    assert sorted(schemas(here)) == sorted(NAMES)


async def test_a_shard_without_root_asks_roots_shard(here: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its replica has the export; here a row stands for it."""
    await offer(here)
    calls = Calls()
    asking = controller(here, calls)
    monkeypatch.setattr("atoll.controllers.exports.kubernetes_schemas.is_of_this_shard", lambda snapshot: False)
    await here.settle()
    assert calls.called == []
    await here.bind("consumer", ROOT, EXPORT)
    await here.settle()
    assert set(calls.called) == {"root"}
    assert schemas(here) == []
    await asking.reconcile(EXPORT_KEY)


async def test_a_binding_of_another_export_of_that_name_writes_nothing(here: Cell) -> None:
    await offer(here)
    await here.cluster("provider")
    controller(here)
    await here.export("provider", EXPORT, crd("circles"))
    await here.bind("consumer", "provider", EXPORT)
    await here.settle()
    assert schemas(here) == []


async def test_many_definitions_are_written_in_parts_before_their_binding(
    here: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bound_definitions, "PART_BYTES", 0)
    await here.cluster("other")
    await here.cluster("provider")
    await here.export("provider", "shapes", *(crd(f"shapes{letter}") for letter in "abcdefgh"))
    for consumer in ("consumer", "other"):
        await here.bind(consumer, "provider", "shapes")
    together = written_of(here, monkeypatch, CRDS, SYSTEM_BOUND_CRDS)
    await here.settle(at_once=8)
    assert max(together) == 1
    assert sum(together) == 8
    revisions = [int(each["metadata"]["resourceVersion"]) for each in here.loopback.each(_BOUND_CRDS)]
    assert len(revisions) == 8
    for consumer in ("consumer", "other"):
        binding = here.found(API_BINDINGS, consumer, "shapes")
        assert len(bound(binding)) == 8
        assert int(binding["metadata"]["resourceVersion"]) > max(revisions)
