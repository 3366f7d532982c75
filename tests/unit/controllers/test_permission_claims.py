"""Which log entries of bindings enqueue the labelling of claimed objects, and what of it fails."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.controllers.bindings.claim_backfill import BATCH, ClaimBackfill
from atoll.controllers.bindings.permission_claims import Binding, PermissionClaimsController
from atoll.machinery.apiserver.writing.batch import Batch
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.kcp.apis.claim_labels import labelling
from atoll.machinery.meta.hashes import EXPORT_LABEL, export_hash
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, encode
from atoll.machinery.meta.shared_lru import SharedLru
from atoll.machinery.meta.types import API_BINDINGS, CONFIG_MAPS, NAMESPACES, SECRETS
from atoll.machinery.storage.contract import LogEntry, Operation, Put
from atoll.tenancy.claim_labels import ENTRY_BYTES, MAX_BYTES, ClaimLabels, ClusterLabelling
from harness.servers.in_process.minimal_shard import Cell, cell

CLUSTER = "consumer"
APPLIED = {"status": "True", "type": "PermissionClaimsApplied"}


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Cell]:
    async with cell(tmp_path) as made:
        yield made


def applied(name: str, resource: str) -> Object:
    """Return a binding of an export of its own name; a claim on all objects of a resource is applied."""
    claim = {"group": "", "resource": resource, "verbs": ["*"], "selector": {"matchAll": True}}
    return {
        "apiVersion": "apis.kcp.io/v1alpha2",
        "kind": "APIBinding",
        "metadata": {"name": name, "labels": {EXPORT_LABEL: export_hash("provider", name)}},
        "spec": {"reference": {"export": {"path": "provider", "name": name}}},
        "status": {"appliedPermissionClaims": [claim]},
    }


def enqueues(here: Cell, metadata: Object, conditions: list[Object]) -> bool:
    controller = PermissionClaimsController(here.loopback, here.facts, here.kind(API_BINDINGS))
    binding = {
        "metadata": {"name": "one", "annotations": {"kcp.io/cluster": CLUSTER}, **metadata},
        "status": {"conditions": [{"type": "InitialBindingCompleted", "status": "True"}, *conditions]},
    }
    key = ObjectKey(API_BINDINGS, CLUSTER, "", "one")
    entry = LogEntry(2, Operation.MODIFIED, key, encode(binding)[0], False, 0, 1, 1)
    return Binding(CLUSTER, "one") in list(controller.keys(entry))


async def test_a_binding_without_claims_whose_condition_is_true_is_not_enqueued(here: Cell) -> None:
    assert not enqueues(here, {}, [{"lastTransitionTime": "2026-01-01T00:00:00Z", **APPLIED}])


async def test_a_binding_that_its_own_controller_has_not_seen_is_not_enqueued(here: Cell) -> None:
    controller = PermissionClaimsController(here.loopback, here.facts, here.kind(API_BINDINGS))
    key = ObjectKey(API_BINDINGS, CLUSTER, "", "one")
    new = LogEntry(2, Operation.ADDED, key, encode(applied("one", "secrets"))[0], False, 0, 1, 1)
    assert Binding(CLUSTER, "one") not in list(controller.keys(new))


@pytest.mark.parametrize("field", ["annotations", "labels"])
async def test_metadata_that_reads_like_the_condition_does_not_stop_labelling(here: Cell, field: str) -> None:
    unfinished = {**APPLIED, "status": "False", "reason": "Applying"}
    assert enqueues(here, {field: {"kcp.io/cluster": CLUSTER, **APPLIED}}, [unfinished])
    assert enqueues(here, {field: {"kcp.io/cluster": CLUSTER, **APPLIED}}, [])


async def test_an_object_that_cannot_be_labelled_is_reported_though_others_follow_it(here: Cell) -> None:
    await here.cluster(CLUSTER)
    await here.put(API_BINDINGS, CLUSTER, applied("one", "configmaps"))
    await here.put(NAMESPACES, CLUSTER, {"metadata": {"name": "default"}})
    for number in range(2 * BATCH):
        target = Target(here.kind(CONFIG_MAPS), CLUSTER, "default", f"m-{number:03d}")
        await here.loopback.create(target, {"metadata": {"name": target.name}})
    first = ObjectKey(CONFIG_MAPS, CLUSTER, "default", "m-000")
    invalid = {**(here.loopback.get(CONFIG_MAPS, CLUSTER, "default", "m-000") or {}), "data": {"not a key": ""}}
    with here.store.snapshot() as snapshot:
        revision = snapshot.revision_of(first)
    await here.store.submit([Put(first, *encode(invalid), revision)])
    failures = await ClaimBackfill(here.loopback, ClaimLabels()).types(CLUSTER, [CONFIG_MAPS])
    assert list(failures) == [CONFIG_MAPS]
    assert failures[CONFIG_MAPS].startswith('"m-000": ')


async def test_labels_of_a_batch_follow_the_bindings_of_that_batch_alone(here: Cell) -> None:
    await here.cluster(CLUSTER)
    await here.put(API_BINDINGS, CLUSTER, applied("stored", "namespaces"))
    claims = ClaimLabels()

    def labelled(batch: Batch) -> set[ResourceType]:
        return {type for type in (CONFIG_MAPS, NAMESPACES, SECRETS) if claims.of(batch, CLUSTER).wanted(type, None)}

    def bind(batch: Batch, name: str, resource: str) -> None:
        batch.create(Target(here.kind(API_BINDINGS), CLUSTER, "", name), applied(name, resource))

    abandoned, landed = here.loopback.batch(), here.loopback.batch()
    assert labelled(abandoned) == {NAMESPACES}
    bind(abandoned, "one", "configmaps")
    assert labelled(abandoned) == {NAMESPACES, CONFIG_MAPS}
    # As many writes over the same stored bindings as the first batch.
    bind(landed, "two", "secrets")
    assert labelled(landed) == {NAMESPACES, SECRETS}
    await landed.submit()
    assert labelled(here.loopback.batch()) == {NAMESPACES, SECRETS}


async def test_clusters_with_the_same_claims_share_what_was_compiled_until_one_has_others(here: Cell) -> None:
    for cluster in (CLUSTER, "other"):
        await here.cluster(cluster)
        await here.put(API_BINDINGS, cluster, applied("stored", "namespaces"))
    claims = ClaimLabels()
    first = claims.of(here.loopback.batch(), CLUSTER)
    assert claims.of(here.loopback.batch(), "other") is first
    assert first.size_bytes > ENTRY_BYTES
    await here.put(API_BINDINGS, "other", applied("more", "configmaps"))
    assert claims.of(here.loopback.batch(), "other").covers(CONFIG_MAPS)
    assert claims.of(here.loopback.batch(), CLUSTER) is first and not first.covers(CONFIG_MAPS)


def test_thousands_of_clusters_with_the_same_claims_fit_into_the_cache() -> None:
    labelling_of_all, cached = labelling([applied("one", "configmaps")]), SharedLru[str, ClusterLabelling](MAX_BYTES)
    for number in range(10_000):
        cached.put(f"c{number}", ClusterLabelling(number, labelling_of_all))
    assert len(cached) == 10_000
