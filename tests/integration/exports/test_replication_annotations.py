"""Annotations that make other shards read an object: kcp's values, and levels of exports."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.control.manager import POSITION_MARK
from atoll.machinery.kcp.sharding import replicate_annotation, replication_level
from atoll.machinery.kcp.sharding.stream_policy import KcpStreamPolicy
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.names import ROOT, ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode, encode, encode_json
from atoll.machinery.meta.status import Forbidden
from atoll.machinery.meta.types import (
    ADMISSION_CONFIGURATIONS,
    API_EXPORT_ENDPOINT_SLICES,
    API_EXPORTS,
    API_RESOURCE_SCHEMAS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    LOGICAL_CLUSTERS,
    MUTATING_WEBHOOKS,
)
from atoll.machinery.storage.contract import Operation, Put, Scope
from atoll.shard.config import ShardConfig
from atoll.standalone.runner import prepare
from atoll.tenancy.replication_scope import NOTED, ReplicationScope
from harness.clients import exports
from harness.data.kind_samples import CONTENT
from harness.models.rbac_snapshot import RBAC, rule, urls
from harness.servers.in_process.shard import InsideShard, shard_inside

GROUP = "shapes.example.com"
BIND = rule("bind", "apiexports", "apis.kcp.io", "things")


@pytest.fixture
async def shard(tmp_path: Path) -> AsyncIterator[InsideShard]:
    async with shard_inside(tmp_path) as made:
        yield made


async def make(shard: InsideShard, type: ResourceType, cluster: str, obj: Object) -> Object:
    name = obj["metadata"]["name"]
    made = await shard.loopback.create(shard.target(type, cluster, "", name), obj)
    await shard.until_idle()
    return made


async def change(shard: InsideShard, type: ResourceType, cluster: str, name: str, **fields: Any) -> None:
    obj = {**found(shard, type, cluster, name), **fields}
    await shard.loopback.update(shard.target(type, cluster, "", name), obj)
    await shard.until_idle()


async def level(shard: InsideShard, cluster: str, name: str, value: str | None) -> None:
    metadata = found(shard, API_EXPORTS, cluster, name)["metadata"]
    annotations = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != replication_level.LEVEL}
    if value is not None:
        annotations[replication_level.LEVEL] = value
    await change(shard, API_EXPORTS, cluster, name, metadata={**metadata, "annotations": annotations})


def found(shard: InsideShard, type: ResourceType, cluster: str, name: str) -> Object:
    obj = shard.loopback.get(type, cluster, "", name)
    assert obj is not None, (type, name)
    return obj


def words(shard: InsideShard, type: ResourceType, cluster: str, name: str) -> tuple[str, ...]:
    return tuple(sorted(replicate_annotation.words_of(found(shard, type, cluster, name))))


def noted(shard: InsideShard, type: ResourceType, cluster: str, name: str) -> str:
    annotations = found(shard, type, cluster, name)["metadata"].get("annotations") or {}
    return str(annotations.get(replication_level.DERIVED, ""))


def role(name: str, *rules: Object) -> Object:
    return {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": list(rules)}


def binding(name: str, of: str, *groups: str) -> Object:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"kind": "ClusterRole", "name": of, "apiGroup": RBAC},
        "subjects": [{"kind": "Group", "name": group, "apiGroup": RBAC} for group in groups],
    }


async def export(shard: InsideShard, cluster: str, name: str, *plurals: str) -> None:
    schemas = [exports.schema(plural, GROUP) for plural in plurals]
    for each in schemas:
        if shard.loopback.get(API_RESOURCE_SCHEMAS, cluster, "", each["metadata"]["name"]) is None:
            await make(shard, API_RESOURCE_SCHEMAS, cluster, each)
    await make(shard, API_EXPORTS, cluster, exports.export(name, *schemas))


async def test_a_workspace_that_offers_nothing_carries_no_word_and_is_written_once(shard: InsideShard) -> None:
    body = {
        "apiVersion": "tenancy.kcp.io/v1alpha1",
        "kind": "Workspace",
        "metadata": {"name": "plain", "annotations": {wellknown.OWNER: '{"username":"alice"}'}},
        "spec": {"type": {"name": "universal", "path": "root"}},
    }
    workspaces = shard.app.identities.workspaces
    await make(shard, workspaces, ROOT, body)
    cluster = found(shard, workspaces, ROOT, "plain")["spec"]["cluster"]
    with shard.app.store.snapshot() as snapshot:
        scopes = Scope(CLUSTER_ROLE_BINDINGS, cluster), Scope(LOGICAL_CLUSTERS, cluster)
        rows = [record for scope in scopes for record in snapshot.scan(scope)]
    assert all(b"internal.kcp.io/replicate" not in row.value for row in rows)
    log = shard.app.store.tail(min(row.revision for row in rows) - 1, 10_000)
    written = [entry for entry in log if (entry.key.cluster, entry.key.type) == (cluster, CLUSTER_ROLE_BINDINGS)]
    assert [entry.operation for entry in written] == [Operation.ADDED]


async def test_what_bootstrap_writes_into_root_is_noted_as_it_should_be(shard: InsideShard) -> None:
    await shard.until_idle()
    reach, differing = ReplicationScope(shard.app.facts), []
    with shard.app.store.snapshot() as snapshot:
        for type in sorted(NOTED):
            for record in snapshot.scan(Scope(type, ROOT)):
                obj = decode(record.value)
                if reach.noted(snapshot, record.key, obj) is not obj:
                    differing.append(record.key)
    assert not differing
    assert words(shard, LOGICAL_CLUSTERS, ROOT, "cluster") == ("apis.kcp.io", "tenancy.kcp.io")


async def test_rules_on_exports_and_types_give_a_role_its_words_as_it_comes(shard: InsideShard) -> None:
    cluster = await shard.workspace("roles")
    for name, given, wanted in (
        ("bind", BIND, ("apis.kcp.io",)),
        ("content", rule("get", "apiexports/content", "apis.kcp.io"), ("apis.kcp.io",)),
        ("use", rule("use", "workspacetypes", "tenancy.kcp.io"), ("tenancy.kcp.io",)),
        ("read", rule("get", "apiexports", "apis.kcp.io"), ()),
        ("enter", urls("access", "/"), ()),
    ):
        made = await make(shard, CLUSTER_ROLES, cluster, role(name, given))
        assert tuple(sorted(replicate_annotation.words_of(made))) == wanted, name
        given_to = await make(shard, CLUSTER_ROLE_BINDINGS, cluster, binding(name, name, "some"))
        assert tuple(sorted(replicate_annotation.words_of(given_to))) == wanted, name


async def test_words_follow_a_role_that_changes_and_are_nobodys_to_write(shard: InsideShard) -> None:
    cluster = await shard.workspace("changes")
    await make(shard, CLUSTER_ROLE_BINDINGS, cluster, binding("early", "later", "some"))
    assert words(shard, CLUSTER_ROLE_BINDINGS, cluster, "early") == ()
    await make(shard, CLUSTER_ROLES, cluster, role("later", BIND))
    assert words(shard, CLUSTER_ROLE_BINDINGS, cluster, "early") == ("apis.kcp.io",)
    metadata = found(shard, CLUSTER_ROLES, cluster, "later")["metadata"]
    await change(shard, CLUSTER_ROLES, cluster, "later", metadata={**metadata, "annotations": {"own": "kept"}})
    assert words(shard, CLUSTER_ROLES, cluster, "later") == ("apis.kcp.io",)
    await change(shard, CLUSTER_ROLES, cluster, "later", rules=[])
    assert words(shard, CLUSTER_ROLES, cluster, "later") == ()
    assert words(shard, CLUSTER_ROLE_BINDINGS, cluster, "early") == ()


async def test_who_is_named_by_a_policy_gives_a_binding_and_its_role_the_word(shard: InsideShard) -> None:
    cluster = await shard.workspace("policy")
    await make(shard, CLUSTER_ROLES, cluster, role("limits", rule("*", "circles", GROUP)))
    assert words(shard, CLUSTER_ROLES, cluster, "limits") == ()
    await make(shard, CLUSTER_ROLE_BINDINGS, cluster, binding("limits", "limits", "apis.kcp.io:binding:some"))
    assert words(shard, CLUSTER_ROLE_BINDINGS, cluster, "limits") == ("apis.kcp.io",)
    assert words(shard, CLUSTER_ROLES, cluster, "limits") == ("apis.kcp.io",)


async def test_a_workspace_that_offers_an_export_lets_other_shards_know_whom_it_admits(shard: InsideShard) -> None:
    cluster = await shard.workspace("provider")
    await make(shard, CLUSTER_ROLE_BINDINGS, cluster, binding("admins", "cluster-admin", "admins"))
    await make(shard, CLUSTER_ROLES, cluster, role("enter", urls("access", "/")))
    await make(shard, CLUSTER_ROLES, cluster, role("inside", rule("access", "logicalclusters", "core.kcp.io")))
    other = rule("access", "logicalclusters", "core.kcp.io", names="other")
    await make(shard, CLUSTER_ROLES, cluster, role("other", other))
    assert words(shard, CLUSTER_ROLE_BINDINGS, cluster, "admins") == ()
    await export(shard, cluster, "things", "circles")
    assert words(shard, LOGICAL_CLUSTERS, cluster, "cluster") == ("apis.kcp.io",)
    assert words(shard, CLUSTER_ROLE_BINDINGS, cluster, "admins") == ("apis.kcp.io", "core.kcp.io")
    assert words(shard, CLUSTER_ROLES, cluster, "enter") == ("core.kcp.io",)
    assert words(shard, CLUSTER_ROLES, cluster, "inside") == ("core.kcp.io",)
    assert words(shard, CLUSTER_ROLES, cluster, "other") == ()
    await shard.loopback.delete(shard.target(API_EXPORTS, cluster, "", "things"), DeleteOptions())
    await shard.until_idle()
    assert words(shard, LOGICAL_CLUSTERS, cluster, "cluster") == ()
    assert words(shard, CLUSTER_ROLE_BINDINGS, cluster, "admins") == ()


@pytest.mark.long
async def test_what_belongs_to_a_narrowed_export_goes_as_far_as_it(shard: InsideShard) -> None:
    cluster = await shard.workspace("narrow")
    await make(shard, CLUSTER_ROLES, cluster, role("bind", BIND))
    await make(shard, CLUSTER_ROLE_BINDINGS, cluster, binding("bind", "bind", "some"))
    await export(shard, cluster, "things", "circles", "squares")
    await export(shard, cluster, "others", "squares")
    belonging = (
        (API_RESOURCE_SCHEMAS, f"today.circles.{GROUP}"),
        (API_EXPORT_ENDPOINT_SLICES, "things"),
        (CLUSTER_ROLES, "bind"),
        (CLUSTER_ROLE_BINDINGS, "bind"),
    )
    for value in (replication_level.REGION, replication_level.ORGANIZATION, None):
        await level(shard, cluster, "things", value)
        assert [noted(shard, type, cluster, name) for type, name in belonging] == [value or ""] * 4
        # Another export gives it away.
        assert noted(shard, API_RESOURCE_SCHEMAS, cluster, f"today.squares.{GROUP}") == ""
    await level(shard, cluster, "things", replication_level.REGION)
    late = exports.schema("circles", GROUP, "late")
    await change(
        shard,
        API_EXPORTS,
        cluster,
        "things",
        spec={**found(shard, API_EXPORTS, cluster, "things")["spec"], "resources": [exports.resource_of(late)]},
    )
    made = await make(shard, API_RESOURCE_SCHEMAS, cluster, late)
    assert made["metadata"]["annotations"][replication_level.DERIVED] == replication_level.REGION


@pytest.mark.long
async def test_an_export_without_a_level_gets_the_operators(tmp_path: Path) -> None:
    async with shard_inside(tmp_path, level=replication_level.REGION) as shard:
        cluster = await shard.workspace("narrow")
        await export(shard, cluster, "things", "circles")
        assert requested(shard, cluster) == replication_level.REGION
        assert noted(shard, API_RESOURCE_SCHEMAS, cluster, f"today.circles.{GROUP}") == replication_level.REGION
        for given, stored in (
            ("global", "global"),
            (None, "region"),
            ("organization", "organization"),
            (None, "region"),
        ):
            await level(shard, cluster, "things", given)
            assert requested(shard, cluster) == stored
        await level(shard, cluster, "things", replication_level.GLOBAL)
        assert noted(shard, API_RESOURCE_SCHEMAS, cluster, f"today.circles.{GROUP}") == ""
        value = encode_json(found(shard, API_EXPORTS, cluster, "things"))
        assert replication_level.may_hold(value, "eu", "us")
        # What every shard needs of root is not the author's to limit.
        system = found(shard, API_EXPORTS, ROOT, "tenancy.kcp.io")
        assert replication_level.LEVEL not in (system["metadata"].get("annotations") or {})


def requested(shard: InsideShard, cluster: str) -> str:
    annotations = found(shard, API_EXPORTS, cluster, "things")["metadata"].get("annotations") or {}
    return str(annotations.get(replication_level.LEVEL, ""))


@pytest.mark.parametrize("value", ["planet", "Region", "", "organization,region"])
async def test_a_level_that_means_nothing_is_refused(shard: InsideShard, value: str) -> None:
    cluster = await shard.workspace("refused")
    made = exports.export("things")
    made["metadata"]["annotations"] = {replication_level.LEVEL: value}
    with pytest.raises(Forbidden, match="supported values"):
        await make(shard, API_EXPORTS, cluster, made)
    with shard.app.store.snapshot() as snapshot:
        assert not snapshot.revision_of(ObjectKey(API_EXPORTS, cluster, "", "things"))


def configuration(type: ResourceType, name: str, **annotations: str) -> Object:
    kinds = {"webhookconfigurations": "WebhookConfiguration", "admissionpolicies": "AdmissionPolicy"}
    kinds["admissionpolicybindings"] = "AdmissionPolicyBinding"
    for verb in ("Mutating", "Validating"):
        if type.resource.startswith(verb.lower()):
            kind = verb + kinds[type.resource.removeprefix(verb.lower())]
    content = CONTENT[type.group, type.resource]
    assert not callable(content)
    metadata = {"name": name, **({"annotations": annotations} if annotations else {})}
    return {"apiVersion": f"{type.group}/v1", "kind": kind, "metadata": metadata, **content}


@pytest.mark.long
async def test_configurations_of_admission_have_the_word_while_their_workspace_exports(shard: InsideShard) -> None:
    cluster = await shard.workspace("provider")

    def of_all(name: str) -> set[tuple[str, ...]]:
        return {words(shard, type, cluster, name) for type in ADMISSION_CONFIGURATIONS}

    for type in ADMISSION_CONFIGURATIONS:
        # No author replicates what no consumer is subject to.
        forged = {wellknown.REPLICATE: "mine,apis.kcp.io", replication_level.DERIVED: "region"}
        await make(shard, type, cluster, configuration(type, "early", **forged))
        assert noted(shard, type, cluster, "early") == ""
        await make(shard, type, cluster, configuration(type, "blank", **{wellknown.REPLICATE: " ,"}))
    assert of_all("early") == of_all("blank") == {()}
    with shard.app.store.snapshot() as snapshot:
        rows = [record for type in ADMISSION_CONFIGURATIONS for record in snapshot.scan(Scope(type, cluster))]
    policy = KcpStreamPolicy()
    assert len(rows) == 12 and not any(policy.replicated(row.key, row.value) for row in rows)
    for _ in range(2):
        await export(shard, cluster, "things", "circles")
        for type in ADMISSION_CONFIGURATIONS:
            made = await make(shard, type, cluster, configuration(type, "late"))
            assert replicate_annotation.words_of(made) == {"apis.kcp.io"}
        assert of_all("early") == of_all("late") == {("apis.kcp.io",)}
        await level(shard, cluster, "things", replication_level.REGION)
        assert {noted(shard, type, cluster, "late") for type in ADMISSION_CONFIGURATIONS} == {"region"}
        await shard.loopback.delete(shard.target(API_EXPORTS, cluster, "", "things"), DeleteOptions())
        await shard.until_idle()
        assert of_all("early") == of_all("late") == {()}
        for type in ADMISSION_CONFIGURATIONS:
            await shard.loopback.delete(shard.target(type, cluster, "", "late"), DeleteOptions())
        await shard.until_idle()


async def test_configurations_of_a_store_that_does_not_know_the_word_get_it_at_the_next_start(tmp_path: Path) -> None:
    async with shard_inside(tmp_path) as shard:
        cluster = await shard.workspace("provider")
        await export(shard, cluster, "things", "circles")
        await make(shard, MUTATING_WEBHOOKS, cluster, configuration(MUTATING_WEBHOOKS, "old"))
    # As an earlier version left it: without the word, and with a position alone.
    store = prepare(ShardConfig(root_directory=str(tmp_path / "inside"), allow_any_filesystem=True))
    key = ObjectKey(MUTATING_WEBHOOKS, cluster, "", "old")
    with store.snapshot() as snapshot:
        record = snapshot.get(key)
    assert record is not None
    obj = decode(record.value)
    del obj["metadata"]["annotations"][wellknown.REPLICATE]
    value, hole = encode(obj)
    [revision] = await store.submit([Put(key, value, hole, record.revision)])
    store.set_mark(POSITION_MARK, str(revision).encode())
    await store.close()
    async with shard_inside(tmp_path) as shard:
        await shard.until_idle()
        assert words(shard, MUTATING_WEBHOOKS, cluster, "old") == ("apis.kcp.io",)
