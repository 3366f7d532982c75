"""Which parameters of policies a shard writes down for other shards, and when they are written again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from atoll.controllers.exports import named_parameters, policy_parameters
from atoll.controllers.exports.policy_parameters import PolicyParameters
from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.control.manager import POSITION_MARK, ControllerMetrics, Manager
from atoll.machinery.kcp.sharding import replication_level
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.objects import Object, annotations_of
from atoll.machinery.meta.types import (
    API_EXPORTS,
    CONFIG_MAPS,
    CRDS,
    LOGICAL_CLUSTERS,
    NAMESPACES,
    POLICY_PARAMETERS,
    SECRETS,
    SERVICE_ACCOUNTS,
    VALIDATING_POLICIES,
    VALIDATING_POLICY_BINDINGS,
)
from atoll.machinery.storage.contract import Scope
from harness.clients.api import configmap, crd
from harness.clients.policies import binding, policy
from harness.servers.in_process.minimal_shard import Cell, cell
from harness.servers.nats import eventually

HOME = "provider"
CONFIGMAP = {"apiVersion": "v1", "kind": "ConfigMap"}


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Cell]:
    async with cell(tmp_path) as made:
        await made.cluster(HOME)
        await made.put(NAMESPACES, HOME, {"metadata": {"name": "default"}})
        await made.put(NAMESPACES, HOME, {"metadata": {"name": "team"}})
        await made.export(HOME, "shapes", crd("circles"))
        controller = PolicyParameters(made.loopback, made.facts, CollectorRegistry())
        made.restart(controller, from_state=True)
        yield made


async def bound(here: Cell, kind: Object = CONFIGMAP, called: str = "p", **reference: object) -> None:
    """A policy with parameters and its binding."""
    await here.put(VALIDATING_POLICIES, HOME, policy(called, "true", paramKind=kind))
    reference = {"parameterNotFoundAction": "Deny", **reference}
    await here.put(VALIDATING_POLICY_BINDINGS, HOME, binding(called, called, paramRef=reference))


async def write(here: Cell, name: str, text: str, namespace: str = "default", **labels: str) -> None:
    target = Target(here.kind(CONFIG_MAPS), HOME, namespace, name)
    body = configmap(name, {"text": text}, namespace=namespace, labels=labels)
    found = here.loopback.get(CONFIG_MAPS, HOME, namespace, name)
    if found is None:
        await here.loopback.create(target, body)
    else:
        body["metadata"] = {**found["metadata"], "labels": labels}
        await here.loopback.update(target, body)


def rows(here: Cell) -> dict[str, Object]:
    return {each["metadata"]["name"]: each for each in here.loopback.each(Scope(POLICY_PARAMETERS, HOME))}


def texts(here: Cell, name: str = "p") -> list[str]:
    spec = rows(here)[f"validatingadmissionpolicybinding.{name}"]["spec"]
    return [json.loads(each)["data"]["text"] for each in spec["params"]]


def error(here: Cell, name: str = "p") -> str:
    return str(rows(here)[f"validatingadmissionpolicybinding.{name}"]["spec"]["error"])


def revision(here: Cell) -> int:
    with here.store.snapshot() as snapshot:
        return snapshot.last(POLICY_PARAMETERS, HOME)


async def test_what_a_binding_names_is_written_and_written_again_when_it_changes(here: Cell) -> None:
    await write(here, "limit", "one")
    await write(here, "limit", "of another namespace", "team")
    await bound(here, name="limit", namespace="default")
    await here.settle()
    assert texts(here) == ["one"]
    await write(here, "limit", "two")
    await here.settle()
    assert texts(here) == ["two"]
    await write(here, "other", "x")
    await write(here, "limit", "x", "team")
    assert not await here.turn(), "nothing that the binding names changed"
    await here.loopback.delete(Target(here.kind(CONFIG_MAPS), HOME, "default", "limit"), DeleteOptions())
    await here.settle()
    assert (texts(here), error(here)) == ([], "")


async def test_without_a_namespace_the_objects_of_all_namespaces_are_written(here: Cell) -> None:
    for space in ("default", "team"):
        await write(here, "limit", space, space)
    await bound(here, name="limit")
    await here.settle()
    assert texts(here) == ["default", "team"]


async def test_a_selector_follows_labels_that_come_and_go(here: Cell) -> None:
    await write(here, "a", "a", on="yes")
    await write(here, "b", "b")
    await bound(here, selector={"matchLabels": {"on": "yes"}})
    await here.settle()
    assert texts(here) == ["a"]
    await write(here, "b", "b", on="yes")
    await write(here, "a", "a", on="no")
    await here.settle()
    assert texts(here) == ["b"]


async def test_rows_go_with_the_binding_the_policy_and_the_export(here: Cell) -> None:
    await write(here, "limit", "one")
    for called in ("p", "q"):
        await bound(here, called=called, name="limit", namespace="default")
    await here.settle()
    assert len(rows(here)) == 2
    await here.delete(VALIDATING_POLICY_BINDINGS, HOME, "p")
    await here.settle()
    assert list(rows(here)) == ["validatingadmissionpolicybinding.q"]
    await here.delete_row(API_EXPORTS, HOME, "shapes")
    await here.settle()
    assert rows(here) == {}
    await here.export(HOME, "shapes", crd("circles"))
    await here.settle()
    assert texts(here, "q") == ["one"]
    await here.delete(VALIDATING_POLICIES, HOME, "q")
    await here.settle()
    assert rows(here) == {}


async def test_a_workspace_that_exports_nothing_writes_nothing(here: Cell) -> None:
    await here.delete_row(API_EXPORTS, HOME, "shapes")
    await write(here, "limit", "one")
    await bound(here, name="limit", namespace="default")
    await here.settle()
    assert rows(here) == {}


@pytest.mark.parametrize(
    ("type", "kind"), [(SECRETS, "Secret"), (SERVICE_ACCOUNTS, "ServiceAccount"), (NAMESPACES, "Namespace")]
)
async def test_nothing_built_in_but_configmaps_is_written(here: Cell, type: ResourceType, kind: str) -> None:
    if type != NAMESPACES:
        target = Target(here.kind(type), HOME, "default", "limit")
        await here.loopback.create(target, {"metadata": {"name": "limit", "namespace": "default"}})
    await bound(here, {"apiVersion": "v1", "kind": kind}, name="limit", namespace="default")
    await here.settle()
    assert texts(here) == []
    assert error(here) == f"parameters of kind {kind} are not replicated: only ConfigMaps and custom objects are"


async def test_a_kind_that_is_not_served_is_an_error_until_it_is(here: Cell) -> None:
    await bound(here, {"apiVersion": "shapes.example.com/v1", "kind": "Square"}, name="s")
    await here.settle()
    assert error(here).startswith("failed to find resource referenced by paramKind")
    established = {"conditions": [{"type": "Established", "status": "True"}]}
    await here.put(CRDS, HOME, {**crd("squares", scope="Cluster"), "status": established})
    await here.settle()
    assert error(here) == ""


@pytest.mark.parametrize(("bound_by", "most"), [("MAX_OBJECTS", 1), ("MAX_BYTES", 600)])
async def test_what_is_beyond_the_bound_of_a_workspace_is_not_written(
    here: Cell, monkeypatch: pytest.MonkeyPatch, bound_by: str, most: int
) -> None:
    monkeypatch.setattr(named_parameters, bound_by, most)
    await write(here, "limit", "one")
    await bound(here, name="limit", namespace="default")
    await bound(here, called="q", name="limit", namespace="default")
    await here.settle()
    assert texts(here) == ["one"]
    assert texts(here, "q") == []
    assert "those of a logical cluster exceed" in error(here, "q")


async def test_of_more_bindings_than_are_replicated_the_others_say_so_and_follow_nothing(
    here: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_parameters, "MAX_BINDINGS", 1)
    await write(here, "limit", "one")
    await write(here, "other", "one")
    await bound(here, name="limit", namespace="default")
    await bound(here, called="q", name="other", namespace="default")
    await here.settle()
    assert (texts(here), texts(here, "q")) == (["one"], [])
    assert "those of a logical cluster exceed" in error(here, "q")
    await write(here, "other", "two")
    assert not await here.turn(), "a change of what is not replicated is nobody's"


async def test_a_row_carries_the_level_of_the_exports(here: Cell) -> None:
    await write(here, "limit", "one")
    await bound(here, name="limit", namespace="default")
    export = here.found(API_EXPORTS, HOME, "shapes")
    annotations = {**annotations_of(export), replication_level.LEVEL: replication_level.REGION}
    await here.change(API_EXPORTS, HOME, "shapes", metadata={**export["metadata"], "annotations": annotations})
    await here.settle()
    (row,) = rows(here).values()
    assert annotations_of(row)[replication_level.DERIVED] == replication_level.REGION


async def test_a_new_controller_follows_from_state_what_the_one_before_followed(here: Cell) -> None:
    await write(here, "limit", "one")
    await bound(here, name="limit", namespace="default")
    await here.settle()
    before = revision(here)
    here.restart(PolicyParameters(here.loopback, here.facts, CollectorRegistry()), from_state=True)
    await here.settle()
    assert revision(here) == before, "a row that says the same is not written"
    await write(here, "limit", "two")
    await here.settle()
    assert texts(here) == ["two"]


async def test_a_manager_that_goes_on_behind_all_bindings_follows_what_they_name(here: Cell) -> None:
    await write(here, "limit", "one")
    await bound(here, name="limit", namespace="default")
    await here.settle()
    with here.store.snapshot() as snapshot:
        here.store.set_mark(POSITION_MARK, str(snapshot.revision).encode())
    registry = CollectorRegistry()
    controller = PolicyParameters(here.loopback, here.facts, registry)
    manager = Manager(here.store, here.store, [controller], ControllerMetrics(registry))
    running = asyncio.create_task(manager.run())
    try:
        await eventually(lambda: manager.synced and manager.idle())
        await write(here, "limit", "two")
        await eventually(lambda: texts(here) == ["two"])
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_in_a_workspace_under_deletion_nothing_is_written(here: Cell) -> None:
    await bound(here, name="limit", namespace="default")
    cluster = here.found(LOGICAL_CLUSTERS, HOME, "cluster")
    metadata = {**cluster["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x/y"]}
    await here.change(LOGICAL_CLUSTERS, HOME, "cluster", metadata=metadata, status={"phase": "Deleting"})
    await here.settle()
    assert rows(here) == {}
