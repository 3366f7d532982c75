"""Bindings to exports on another shard: bound when rows arrive in any order, and kept when they are deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from atoll.controllers.bindings.deleted_exports import DeletedExports
from atoll.controllers.exports.replication_labels import ReplicationLabels
from atoll.machinery.kcp.apis import bound_crds, endpointslices
from atoll.machinery.kcp.sharding import replication_level
from atoll.machinery.meta import hashes, wellknown
from atoll.machinery.meta.conditions import find
from atoll.machinery.meta.names import ROOT, SYSTEM_BOUND_CRDS, ObjectKey
from atoll.machinery.meta.objects import Object, encode, encode_json
from atoll.machinery.meta.types import (
    API_BINDINGS,
    API_EXPORT_ENDPOINT_SLICES,
    API_EXPORTS,
    API_RESOURCE_SCHEMAS,
    CRDS,
    LOGICAL_CLUSTERS,
)
from atoll.machinery.storage.contract import Put, Replica, Scope
from atoll.tenancy.bound_definitions import BoundCrds
from harness.clients.api import crd
from harness.clients.exports import schema_of
from harness.servers.in_process.minimal_shard import Cell
from harness.servers.in_process.replica_source import Neighbour, neighbours

GROUP, CONSUMER, PROVIDER, OTHER = "shapes.example.com", "2consumer", "3provider", "5other"


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[tuple[Cell, Neighbour]]:
    async with neighbours(tmp_path) as made:
        here, provider = made
        await here.cluster(CONSUMER)
        await provider.cell.cluster(PROVIDER)
        yield here, provider


def said(here: Cell, type: str, name: str = "one") -> str:
    status = here.found(API_BINDINGS, CONSUMER, name).get("status") or {}
    found = find(status.get("conditions") or (), type)
    return str(found.get("reason") or found["status"]) if found is not None else ""


def phase(here: Cell, name: str = "one") -> str:
    return str((here.found(API_BINDINGS, CONSUMER, name).get("status") or {}).get("phase") or "")


def is_served(here: Cell, plural: str) -> bool:
    return here.catalog(CONSUMER).find(GROUP, "v1", plural) is not None


async def put(cell: Cell, key: ObjectKey, obj: Object) -> None:
    """Write a row of a kind that cells do not serve."""
    value, hole = encode(obj)
    with cell.store.snapshot() as snapshot:
        await cell.store.submit([Put(key, value, hole, snapshot.revision_of(key))])


def workspace_key(cell: Cell, cluster: str, name: str) -> ObjectKey:
    return ObjectKey(cell.facts.identities.workspaces, cluster, "", name)


async def workspace(cell: Cell, parent: str, name: str, cluster: str) -> None:
    body = {"metadata": {"name": name, "uid": name}, "spec": {"cluster": cluster}, "status": {"phase": "Ready"}}
    await put(cell, workspace_key(cell, parent, name), body)


async def annotate(cell: Cell, type: Any, cluster: str, name: str, **annotations: str | None) -> None:
    metadata = cell.found(type, cluster, name)["metadata"]
    merged = {**(metadata.get("annotations") or {}), **{k.replace("__", "/"): v for k, v in annotations.items()}}
    kept = {key: value for key, value in merged.items() if value is not None}
    await cell.change(type, cluster, name, metadata={**metadata, "annotations": kept})


async def pathed(cell: Cell, cluster: str, path: str) -> None:
    await annotate(cell, LOGICAL_CLUSTERS, cluster, "cluster", **{wellknown.PATH: path})


async def test_a_binding_that_waits_is_bound_when_the_export_arrives(both: tuple[Cell, Neighbour]) -> None:
    here, provider = both
    await here.bind(CONSUMER, PROVIDER, "one")
    await here.settle()
    assert (phase(here), said(here, "APIExportValid")) == ("Binding", "APIExportNotFound")
    await provider.cell.export(PROVIDER, "one", crd("circles", GROUP))
    await here.settle()
    assert phase(here) == "Binding"
    await provider.flow()
    await here.settle()
    assert phase(here) == "Bound" and is_served(here, "circles")


async def test_what_is_changed_elsewhere_is_bound_anew(both: tuple[Cell, Neighbour]) -> None:
    here, provider = both
    await provider.cell.export(PROVIDER, "one", crd("circles", GROUP))
    await provider.flow()
    await here.bind(CONSUMER, PROVIDER, "one")
    await here.settle()
    made = await provider.cell.put(API_RESOURCE_SCHEMAS, PROVIDER, schema_of(crd("squares", GROUP)))
    spec = provider.cell.found(API_EXPORTS, PROVIDER, "one")["spec"]
    entry = {"name": "squares", "group": GROUP, "schema": made["metadata"]["name"]}
    await provider.cell.change(API_EXPORTS, PROVIDER, "one", spec={**spec, "resources": [*spec["resources"], entry]})
    await provider.flow()
    await here.settle()
    assert is_served(here, "circles") and is_served(here, "squares")


async def test_a_schema_that_arrives_after_its_export_is_bound(both: tuple[Cell, Neighbour]) -> None:
    here, provider = both
    await provider.cell.export(PROVIDER, "one", crd("circles", GROUP))
    (name,) = [each["schema"] for each in provider.cell.found(API_EXPORTS, PROVIDER, "one")["spec"]["resources"]]
    schema = provider.cell.found(API_RESOURCE_SCHEMAS, PROVIDER, name)
    await provider.cell.delete_row(API_RESOURCE_SCHEMAS, PROVIDER, name)
    await provider.flow()
    await here.bind(CONSUMER, PROVIDER, "one")
    await here.settle()
    assert said(here, "APIExportValid") == "InternalError"
    schema["metadata"].pop("resourceVersion")
    await provider.cell.put(API_RESOURCE_SCHEMAS, PROVIDER, schema)
    await provider.flow()
    await here.settle()
    assert phase(here) == "Bound"


async def test_without_the_export_a_binding_stays_bound(both: tuple[Cell, Neighbour]) -> None:
    here, provider = both
    await provider.cell.export(PROVIDER, "one", crd("circles", GROUP))
    await provider.flow()
    await here.bind(CONSUMER, PROVIDER, "one")
    await here.settle()
    await provider.cell.delete(API_EXPORTS, PROVIDER, "one")
    await provider.flow()
    await here.settle()
    assert (phase(here), said(here, "APIExportValid")) == ("Bound", "APIExportNotFound")
    assert is_served(here, "circles")
    await provider.cell.export(PROVIDER, "one", crd("circles", GROUP))
    await provider.flow()
    await here.settle()
    assert said(here, "APIExportValid") == "True"


@pytest.mark.parametrize("last", ["the workspace here", "the workspace there"])
async def test_a_path_leads_on_when_the_last_workspace_of_it_is_there(both: tuple[Cell, Neighbour], last: str) -> None:
    here, provider = both
    await here.cluster(ROOT)
    await provider.cell.cluster("4team")
    await provider.cell.export(PROVIDER, "one", crd("circles", GROUP))
    if last == "the workspace here":
        await workspace(provider.cell, "4team", "shop", PROVIDER)
    else:
        await workspace(here, ROOT, "team", "4team")
    await provider.flow()
    await here.bind(CONSUMER, "root:team:shop", "one")
    await here.settle()
    assert phase(here) == "Binding"
    if last == "the workspace here":
        await workspace(here, ROOT, "team", "4team")
    else:
        await workspace(provider.cell, "4team", "shop", PROVIDER)
        await provider.flow()
    await here.settle()
    assert phase(here) == "Bound"
    labels = here.found(API_BINDINGS, CONSUMER, "one")["metadata"]["labels"]
    assert labels == {hashes.EXPORT_LABEL: hashes.export_hash(PROVIDER, "one")}


async def test_a_binding_that_comes_bound_is_looked_at_as_nothing_elsewhere_can_be_guarded(
    both: tuple[Cell, Neighbour],
) -> None:
    here, provider = both
    await provider.cell.export(PROVIDER, "one", crd("circles", GROUP))
    await provider.flow()
    await here.bind(CONSUMER, PROVIDER, "one")
    await here.settle()
    bound = here.found(API_BINDINGS, CONSUMER, "one")
    await here.delete_row(API_BINDINGS, CONSUMER, "one")
    await here.settle()
    # The export changed and was reconciled between the plan of a workspace and its submit.
    spec = provider.cell.found(API_EXPORTS, PROVIDER, "one")["spec"]
    made = await provider.cell.put(API_RESOURCE_SCHEMAS, PROVIDER, schema_of(crd("circles", GROUP), "tomorrow"))
    await provider.cell.change(
        API_EXPORTS,
        PROVIDER,
        "one",
        spec={**spec, "resources": [{"name": "circles", "group": GROUP, "schema": made["metadata"]["name"]}]},
    )
    await provider.flow()
    await here.settle()
    bound["metadata"].pop("resourceVersion")
    await here.put(API_BINDINGS, CONSUMER, bound)
    await here.settle()
    (resource,) = here.found(API_BINDINGS, CONSUMER, "one")["status"]["boundResources"]
    assert resource["schema"]["name"] == made["metadata"]["name"]


async def test_whether_an_export_elsewhere_has_a_policy_is_kept_for_when_it_is_not_known(
    both: tuple[Cell, Neighbour],
) -> None:
    here, provider = both
    await provider.cell.export(PROVIDER, "one", crd("circles", GROUP))
    await provider.flow()
    await here.bind(CONSUMER, PROVIDER, "one")
    await here.settle()
    (uid,) = [each["schema"]["UID"] for each in here.found(API_BINDINGS, CONSUMER, "one")["status"]["boundResources"]]

    def policed() -> list[str]:
        with here.store.snapshot() as snapshot:
            found = BoundCrds().get(snapshot, uid)
        assert found is not None
        return list(found.policed)

    assert policed() == []
    policies: tuple[dict[str, Any] | None, ...] = ({"local": {}}, None)
    for local in policies:
        spec = {**provider.cell.found(API_EXPORTS, PROVIDER, "one")["spec"], "maximalPermissionPolicy": local}
        if local is None:
            del spec["maximalPermissionPolicy"]
        await provider.cell.change(API_EXPORTS, PROVIDER, "one", spec=spec)
        await provider.flow()
        await here.settle()
        assert policed() == (["one"] if local is not None else [])
    crds = here.found(CRDS, SYSTEM_BOUND_CRDS, uid)
    assert bound_crds.exports_of(crds) == ["one"]


@pytest.mark.parametrize("how", ["deleted", "sent by another shard too", "no longer replicated here"])
async def test_a_deleted_export_polices_nothing_and_one_that_is_out_of_sight_still_does(
    both: tuple[Cell, Neighbour], how: str
) -> None:
    here, provider = both
    here.controllers.append(DeletedExports(here.loopback, here.facts.identities.shard_objects))
    await provider.cell.export(PROVIDER, "one", crd("circles", GROUP))
    spec = {**provider.cell.found(API_EXPORTS, PROVIDER, "one")["spec"], "maximalPermissionPolicy": {"local": {}}}
    await provider.cell.change(API_EXPORTS, PROVIDER, "one", spec=spec)
    await provider.flow()
    await here.bind(CONSUMER, PROVIDER, "one")
    await here.settle()
    (uid,) = [each["schema"]["UID"] for each in here.found(API_BINDINGS, CONSUMER, "one")["status"]["boundResources"]]
    assert bound_crds.policed_of(here.found(CRDS, SYSTEM_BOUND_CRDS, uid)) == ["one"]
    if how == "sent by another shard too":
        key = ObjectKey(API_EXPORTS, PROVIDER, "", "one")
        west = ObjectKey(here.facts.identities.shard_objects, ROOT, "", "west")
        await put(here, west, {"metadata": {"name": "west"}})
        await here.store.submit([Replica("west", key, encode_json({"metadata": {"name": "one"}}), 1, 1)])
    if how == "no longer replicated here":
        await annotate(provider.cell, API_EXPORTS, PROVIDER, "one", **{replication_level.LEVEL: "region"})
        await provider.flow()
    else:
        await provider.cell.delete(API_EXPORTS, PROVIDER, "one")
        await provider.flow()
    await here.settle()
    kept = [] if how == "deleted" else ["one"]
    assert bound_crds.policed_of(here.found(CRDS, SYSTEM_BOUND_CRDS, uid)) == kept


@pytest.fixture
async def narrow(both: tuple[Cell, Neighbour]) -> tuple[Cell, Neighbour]:
    """An export of `root:acme` on the other shard; here workspaces of that organization and of another."""
    here, provider = both
    await pathed(provider.cell, PROVIDER, "root:acme:provider")
    await pathed(here, CONSUMER, "root:acme:web")
    await here.cluster(OTHER)
    await pathed(here, OTHER, "root:other:web")
    await provider.cell.export(PROVIDER, "one", crd("circles", GROUP))
    await annotate(provider.cell, API_EXPORTS, PROVIDER, "one", **{wellknown.PATH: "root:acme:provider"})
    return both


async def level(provider: Neighbour, level: str | None) -> None:
    """Narrow the export and its schema as admission and the labelling controller leave them, and let that arrive."""
    await annotate(provider.cell, API_EXPORTS, PROVIDER, "one", **{replication_level.LEVEL: level})
    (name,) = [each["schema"] for each in provider.cell.found(API_EXPORTS, PROVIDER, "one")["spec"]["resources"]]
    await annotate(provider.cell, API_RESOURCE_SCHEMAS, PROVIDER, name, **{replication_level.DERIVED: level})
    await provider.flow()


def is_found(here: Cell, seen_from: str) -> bool:
    with here.store.snapshot() as snapshot:
        return here.facts.export(snapshot, PROVIDER, "one", seen_from) is not None


def stored(here: Cell) -> int:
    """Rows of the export and its schema that this shard holds, whatever their level."""
    with here.store.snapshot() as snapshot:
        types = (API_EXPORTS, API_RESOURCE_SCHEMAS)
        return sum(len(snapshot.replicas.rows_of("east", Scope(type, PROVIDER))) for type in types)


async def test_an_export_of_an_organization_is_not_there_for_another(narrow: tuple[Cell, Neighbour]) -> None:
    here, provider = narrow
    await level(provider, replication_level.ORGANIZATION)
    assert is_found(here, CONSUMER) and not is_found(here, OTHER)
    await here.bind(CONSUMER, PROVIDER, "one")
    await here.bind(OTHER, PROVIDER, "one")
    await here.settle()
    assert phase(here) == "Bound"
    other = here.found(API_BINDINGS, OTHER, "one")["status"]
    assert other["phase"] == "Binding" and "boundResources" not in other
    await level(provider, None)
    await here.settle()
    assert here.found(API_BINDINGS, OTHER, "one")["status"]["phase"] == "Bound"


async def test_an_export_of_a_region_is_stored_by_no_shard_of_another(narrow: tuple[Cell, Neighbour]) -> None:
    here, provider = narrow
    provider.region, provider.region_here = "eu", "us"
    for _ in range(2):
        await level(provider, replication_level.REGION)
        assert not stored(here) and not is_found(here, CONSUMER)
        await level(provider, None)
        assert stored(here) == 2 and is_found(here, CONSUMER)


async def test_an_export_of_a_region_is_found_in_that_region(narrow: tuple[Cell, Neighbour]) -> None:
    here, provider = narrow
    provider.region = provider.region_here = "eu"
    await level(provider, replication_level.REGION)
    assert stored(here) == 2 and is_found(here, CONSUMER)


async def test_a_slice_for_an_export_elsewhere_goes_no_further_than_it(narrow: tuple[Cell, Neighbour]) -> None:
    here, provider = narrow
    here.controllers.append(ReplicationLabels(here.loopback, here.facts))
    provider.region = provider.region_here = "eu"
    await level(provider, None)
    label = hashes.export_hash(PROVIDER, "one")
    await here.put(
        API_EXPORT_ENDPOINT_SLICES,
        CONSUMER,
        {
            "apiVersion": "apis.kcp.io/v1alpha1",
            "kind": "APIExportEndpointSlice",
            "metadata": {"name": "mine", "labels": {endpointslices.EXPORT_LABEL: label}},
            "spec": {"export": {"path": PROVIDER, "name": "one"}},
        },
    )
    for value in (replication_level.REGION, None):
        await level(provider, value)
        await here.settle()
        found = here.found(API_EXPORT_ENDPOINT_SLICES, CONSUMER, "mine")
        assert (found["metadata"].get("annotations") or {}).get(replication_level.DERIVED) == value
