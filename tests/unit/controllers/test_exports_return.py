"""Exports and providers that are deleted and created again, noticed late or never: bindings match the final state."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from atoll.controllers.bindings.apibindings import ApiBindings, BindingKey, ExportKey
from atoll.controllers.bindings.permission_claims import Binding, PermissionClaimsController
from atoll.machinery.meta import hashes, wellknown
from atoll.machinery.meta.conditions import find
from atoll.machinery.meta.names import ROOT, ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, encode
from atoll.machinery.meta.types import API_BINDINGS, API_EXPORTS, CONFIG_MAPS, LOGICAL_CLUSTERS, SECRETS
from atoll.machinery.storage.contract import Put
from harness.clients.api import crd
from harness.servers.in_process.minimal_shard import Cell, bound, cell, locks_of

GROUP, HERE, THERE = "shapes.example.com", "consumer", "provider"
CLAIM: Object = {"group": "", "resource": "configmaps", "verbs": ["*"]}


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Cell]:
    async with cell(tmp_path) as made:
        await made.cluster(THERE)
        await made.cluster(HERE)
        yield made


def said(here: Cell, type: str, name: str = "one", cluster: str = HERE) -> str:
    status = here.found(API_BINDINGS, cluster, name).get("status") or {}
    found = find(status.get("conditions") or (), type)
    return str(found["status"]) if found is not None else ""


def controller(here: Cell) -> ApiBindings:
    found = here.controllers[0]
    assert isinstance(found, ApiBindings)
    return found


async def test_an_export_that_comes_back_before_its_absence_is_looked_at_is_valid_again(here: Cell) -> None:
    await here.export(THERE, "one", crd("circles", GROUP))
    await here.bind(HERE, THERE, "one")
    await here.settle()
    await here.delete(API_EXPORTS, THERE, "one")
    # Another event reconciles only the binding while the export is absent.
    await controller(here).reconcile(BindingKey(HERE, "one"))
    assert said(here, "APIExportValid") == "False"
    await here.export(THERE, "one", crd("circles", GROUP))
    await here.settle()
    assert said(here, "APIExportValid") == "True"


async def test_an_export_that_goes_and_comes_is_valid_again_though_nobody_looked_in_between(here: Cell) -> None:
    await here.export(THERE, "one", crd("circles", GROUP))
    await here.bind(HERE, THERE, "one")
    await here.settle()
    await here.delete(API_EXPORTS, THERE, "one")
    await here.settle()
    assert said(here, "APIExportValid") == "False"
    await here.export(THERE, "one", crd("circles", GROUP))
    await here.settle()
    assert said(here, "APIExportValid") == "True"


async def workspace(here: Cell, name: str, cluster: str) -> None:
    """A Workspace below root, and its LogicalCluster."""
    metadata = {"name": name, "uid": name, "annotations": {"kcp.io/cluster": ROOT}}
    value, hole = encode({"metadata": metadata, "spec": {"cluster": cluster, "URL": f"https://here/{cluster}"}})
    key = ObjectKey(here.facts.identities.workspaces, ROOT, "", name)
    await here.store.submit([Put(key, value, hole, 0)])
    await here.cluster(cluster)
    home = here.found(LOGICAL_CLUSTERS, cluster, "cluster")
    annotations = {**home["metadata"]["annotations"], wellknown.PATH: f"root:{name}"}
    # As one created with its path: its log entry is that of a creation.
    await here.delete_row(LOGICAL_CLUSTERS, cluster, "cluster")
    fresh = {**home, "metadata": {"name": "cluster", "annotations": annotations}}
    await here.put(LOGICAL_CLUSTERS, cluster, fresh)


async def test_a_provider_that_is_made_anew_under_its_path_is_found_by_who_bound_the_old_one(here: Cell) -> None:
    await workspace(here, "team", "first")
    await here.export("first", "one", crd("circles", GROUP))
    await here.bind(HERE, "root:team", "one")
    await here.settle()
    assert bound(here.found(API_BINDINGS, HERE, "one")) == ["circles"]
    # Content is deleted before its workspace.
    await here.delete(API_EXPORTS, "first", "one")
    await here.settle()
    await here.delete_row(LOGICAL_CLUSTERS, "first", "cluster")
    await here.delete_row(here.facts.identities.workspaces, ROOT, "team")
    await here.settle()
    await workspace(here, "team", "second")
    await here.settle()
    await here.export("second", "one", crd("circles", GROUP))
    await here.settle()
    assert said(here, "APIExportValid") == "True"
    assert here.found(API_BINDINGS, HERE, "one")["status"]["apiExportClusterName"] == "second"


async def test_one_binding_that_cannot_be_written_keeps_no_other_of_its_export_waiting(here: Cell) -> None:
    clusters = [f"c{number:02}" for number in range(40)]
    await here.export(THERE, "one", crd("circles", GROUP))
    for name in clusters:
        await here.cluster(name)
        await here.bind(name, THERE, "one")
    await here.settle()
    odd = controller(here)
    settle = odd._reconcile_binding

    async def refused(key: BindingKey) -> None:
        if key.cluster == "c00":
            raise RuntimeError("odd")
        await settle(key)

    odd._reconcile_binding = refused  # type: ignore[method-assign]
    await here.delete(API_EXPORTS, THERE, "one")
    with pytest.raises(RuntimeError, match="odd"):
        await odd.reconcile(ExportKey(THERE, "one"))
    assert [name for name in clusters if said(here, "APIExportValid", cluster=name) == "True"] == ["c00"]


async def test_locks_that_cannot_be_read_are_written_anew(here: Cell) -> None:
    await here.export(THERE, "one", crd("circles", GROUP))
    await here.bind(HERE, THERE, "one")
    await here.settle()
    home = here.found(LOGICAL_CLUSTERS, HERE, "cluster")
    annotations = {**home["metadata"]["annotations"], wellknown.LOCKS: "{not json"}
    await here.change(LOGICAL_CLUSTERS, HERE, "cluster", metadata={**home["metadata"], "annotations": annotations})
    await here.settle()
    assert set(locks_of(here.found(LOGICAL_CLUSTERS, HERE, "cluster"))) == {f"circles.{GROUP}"}


def claims_of(here: Cell) -> PermissionClaimsController:
    return PermissionClaimsController(here.loopback, here.facts, here.kind(API_BINDINGS))


async def accept(here: Cell, **selector: Any) -> None:
    spec = here.found(API_BINDINGS, HERE, "one")["spec"]
    granted = {**CLAIM, "selector": selector or {"matchAll": True}, "state": "Accepted"}
    await here.change(API_BINDINGS, HERE, "one", spec={**spec, "permissionClaims": [granted]})


async def claiming(here: Cell) -> PermissionClaimsController:
    made = await here.export(THERE, "one", crd("circles", GROUP))
    await here.change(API_EXPORTS, THERE, "one", spec={**made["spec"], "permissionClaims": [CLAIM]})
    await here.bind(HERE, THERE, "one")
    await here.settle()
    return claims_of(here)


async def test_what_is_accepted_while_the_export_is_away_is_applied_as_it_was_claimed_last(here: Cell) -> None:
    claims = await claiming(here)
    await accept(here)
    await here.settle()
    await here.delete_row(API_EXPORTS, THERE, "one")
    assert await claims.reconcile(Binding(HERE, "one")) is None
    assert said(here, "PermissionClaimsApplied") == "True"
    applied = here.found(API_BINDINGS, HERE, "one")["status"]["appliedPermissionClaims"]
    assert [each["resource"] for each in applied] == ["configmaps"]


@pytest.mark.parametrize("type", [CONFIG_MAPS, SECRETS], ids=["plain", "sealed"])
async def test_what_was_written_under_a_claim_that_is_gone_by_then_loses_its_label(
    here: Cell, type: ResourceType
) -> None:
    claims = await claiming(here)
    await accept(here)
    await here.settle()
    await claims.reconcile(Binding(HERE, "one"))
    await here.delete_row(API_BINDINGS, HERE, "one")
    label = hashes.CLAIM_LABEL_PREFIX + hashes.export_hash(THERE, "one")
    metadata = {"name": "late", "namespace": "default", "uid": "u", "labels": {label: "x"}}
    value, hole = encode({"metadata": metadata, **({"type": "Opaque"} if type == SECRETS else {})})
    key = ObjectKey(type, HERE, "default", "late")
    before = here.store.tail(0, 100000)[-1].revision
    await here.store.submit([Put(key, value, hole, 0)])
    (entry,) = here.store.tail(before, 10)
    if type == SECRETS:
        entry = replace(entry, sealed=True, value=b"")
    assert list(claims.keys(entry)) == [key]
    await claims.reconcile(key)
    left = here.loopback.get(type, HERE, "default", "late")
    assert left is not None
    assert left["metadata"].get("labels", {}) == {}


async def test_objects_that_cannot_be_labelled_cost_no_writes_while_nothing_changes(here: Cell) -> None:
    claims = await claiming(here)
    await accept(here)
    await here.settle()

    async def refused(cluster: str, types: Any) -> Any:
        return {CONFIG_MAPS: "odd"}

    claims._relabelling.types = refused  # type: ignore[method-assign]
    assert await claims.reconcile(Binding(HERE, "one"))
    before = here.found(API_BINDINGS, HERE, "one")["metadata"]["resourceVersion"]
    assert await claims.reconcile(Binding(HERE, "one"))
    assert here.found(API_BINDINGS, HERE, "one")["metadata"]["resourceVersion"] == before
