"""Which configurations act on a kind in a cluster, and how little is read to know it."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from atoll.machinery.apiserver.admission.configured.registry import Acting, Registry
from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.kinds.core.configmaps import CONFIGMAPS
from atoll.machinery.kinds.core.secrets import SECRETS
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import types
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.types import LOGICAL_CLUSTERS, NAMESPACES
from harness.clients.exports import binding
from harness.servers.in_process.minimal_shard import Cell, cell

HOME, OTHER = "home", "other"


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Cell]:
    async with cell(tmp_path) as made:
        await made.cluster(HOME)
        await made.cluster(OTHER)
        yield made


def acting(here: Cell, registry: Registry, cluster: str = HOME, kind: Kind = CONFIGMAPS) -> Acting | None:
    with here.store.snapshot() as snapshot:
        return registry.acting(snapshot, cluster, kind)


def rule(*resources: str, operations: tuple[str, ...] = ("*",)) -> Object:
    return {"operations": list(operations), "apiGroups": ["*"], "apiVersions": ["*"], "resources": list(resources)}


def configuration(name: str, *webhooks: Object) -> Object:
    return {"metadata": {"name": name}, "webhooks": list(webhooks)}


def webhook(name: str, *rules: Object) -> Object:
    client = {"url": "https://127.0.0.1:1/x"}
    fields = {"clientConfig": client, "sideEffects": "None", "admissionReviewVersions": ["v1"]}
    return {"name": f"{name}.example.com", "rules": list(rules), **fields}


async def test_with_nothing_configured_nothing_acts(here: Cell) -> None:
    found = Registry(here.core.catalogs)
    assert acting(here, found) is None


async def test_webhooks_act_in_the_order_of_their_configurations_and_keep_their_places(here: Cell) -> None:
    all_, secrets = rule("*"), rule("secrets")
    await here.put(types.MUTATING_WEBHOOKS, HOME, configuration("b", webhook("b0", secrets), webhook("b1", all_)))
    await here.put(types.MUTATING_WEBHOOKS, HOME, configuration("a", webhook("a0", all_)))
    found = acting(here, Registry(here.core.catalogs))
    assert found is not None
    assert [(each.webhook.name, each.place) for each in found.mutating_webhooks] == [
        ("a0.example.com", 0),
        ("b1.example.com", 2),
    ]


async def test_only_what_may_match_the_kind_acts(here: Cell) -> None:
    await here.put(types.VALIDATING_WEBHOOKS, HOME, configuration("a", webhook("a", rule("configmaps"))))
    found = Registry(here.core.catalogs)
    assert acting(here, found) is not None
    assert acting(here, found, kind=SECRETS) is None
    assert acting(here, found, OTHER) is None


async def test_a_policy_acts_once_it_is_bound_and_a_change_counts_at_once(here: Cell) -> None:
    found = Registry(here.core.catalogs)
    policy = {
        "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {"resourceRules": [rule("configmaps", operations=("CREATE",))]},
            "validations": [{"expression": "true"}],
        },
    }
    await here.put(types.VALIDATING_POLICIES, HOME, policy)
    assert acting(here, found) is None
    bound = {"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}}
    await here.put(types.VALIDATING_POLICY_BINDINGS, HOME, bound)
    first = acting(here, found)
    assert first is not None
    assert [(each.policy.name, [one.name for one in each.bindings]) for each in first.validating_policies] == [
        ("p", ["b"])
    ]
    assert (first.covers("CREATE"), first.covers("DELETE")) == (True, False)
    target = Target(here.kind(types.VALIDATING_POLICY_BINDINGS), HOME, "", "b")
    await here.loopback.delete(target, DeleteOptions())
    assert acting(here, found) is None


async def test_an_answer_is_kept_while_nothing_configured_changes(here: Cell) -> None:
    found = Registry(here.core.catalogs)
    await here.put(types.VALIDATING_WEBHOOKS, HOME, configuration("a", webhook("a", rule("*"))))
    first = acting(here, found)
    await here.put(NAMESPACES, HOME, {"metadata": {"name": "space"}})
    assert acting(here, found) is first
    await here.put(types.VALIDATING_WEBHOOKS, OTHER, configuration("a", webhook("a", rule("*"))))
    assert acting(here, found) is first


async def test_a_cluster_that_is_being_deleted_is_not_held_by_its_own_configurations(here: Cell) -> None:
    found = Registry(here.core.catalogs)
    await here.put(types.VALIDATING_WEBHOOKS, HOME, configuration("a", webhook("a", rule("*"))))
    assert acting(here, found) is not None
    await here.delete(LOGICAL_CLUSTERS, HOME, "cluster")
    assert acting(here, found) is None


async def test_whether_anything_may_act_is_told_without_a_kind_where_it_is_certain(here: Cell) -> None:
    """What is bound may be the matter of its provider, wherever that is; all else is that of its cluster alone."""
    found, bound = Registry(here.core.catalogs), ResourceType("shapes.example.com", "circles", "1" * 64)

    def may_act(cluster: str, *reviewed: ResourceType) -> bool:
        with here.store.snapshot() as snapshot:
            return found.may_act(snapshot, cluster, reviewed)

    assert not may_act(HOME, types.CONFIG_MAPS, bound)
    await here.put(types.VALIDATING_WEBHOOKS, OTHER, configuration("a", webhook("a", rule("*"))))
    assert may_act(OTHER, types.CONFIG_MAPS)
    assert not may_act(HOME, types.CONFIG_MAPS)
    assert may_act(HOME, types.CONFIG_MAPS, bound)


@pytest.mark.parametrize("wanted", ["first", "second"])
async def test_the_provider_of_a_kind_is_that_of_its_identity(here: Cell, wanted: str) -> None:
    """Two providers export kinds of one name: the bindings of a consumer tell which of them has the identity."""
    identities = {"first": "1" * 64, "second": "2" * 64}
    for provider, identity in identities.items():
        await here.cluster(provider)
        await here.put(types.VALIDATING_WEBHOOKS, provider, configuration("a", webhook(provider, rule("*"))))
        schema = {"name": "s", "UID": provider, "identityHash": identity}
        bound = {"group": "shapes.example.com", "resource": "circles", "schema": schema, "storageVersions": ["v1"]}
        obj = binding(f"root:{provider}", "shapes", called=provider)
        status = {"apiExportClusterName": provider, "boundResources": [bound]}
        await here.put(types.API_BINDINGS, HOME, {**obj, "status": status})
    names = {"group": "shapes.example.com", "plural": "circles", "singular": "circle", "kind": "Circle"}
    kind = replace(CONFIGMAPS, **names, identity=identities[wanted], builtin=False)
    found = acting(here, Registry(here.core.catalogs), kind=kind)
    assert found is not None
    assert [each.name for each in found.validating_webhooks] == [f"{wanted}.example.com"]


def a_policy(name: str, text: str) -> Object:
    spec = {"matchConstraints": {"resourceRules": [rule("configmaps")]}, "validations": [{"expression": text}]}
    return {"metadata": {"name": name}, "spec": spec}


async def bind(here: Cell, cluster: str, policy: Object) -> None:
    name = policy["metadata"]["name"]
    binding = {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}}
    await here.put(types.VALIDATING_POLICIES, cluster, policy)
    await here.put(types.VALIDATING_POLICY_BINDINGS, cluster, binding)


async def test_clusters_with_the_same_policies_and_webhooks_share_them(here: Cell) -> None:
    for cluster in (HOME, OTHER):
        await bind(here, cluster, a_policy("p", "object.metadata.name != 'x'"))
        await here.put(types.VALIDATING_WEBHOOKS, cluster, configuration("a", webhook("a", rule("*"))))
    found = Registry(here.core.catalogs)
    first, weight = acting(here, found), found.size_bytes
    second = acting(here, found, OTHER)
    assert first is not None and second is not None
    (one,), (two,) = first.validating_policies, second.validating_policies
    assert one.policy is two.policy and one.bindings[0] is two.bindings[0]
    assert (one.cluster, two.cluster) == (HOME, OTHER)
    (here_asked,), (there_asked,) = first.validating_webhooks, second.validating_webhooks
    assert here_asked.entry is there_asked.entry and here_asked.uid != there_asked.uid
    assert found.size_bytes - weight < weight / 2


async def test_huge_policies_of_a_tenant_stay_within_the_bound(here: Cell) -> None:
    limit = 400_000
    found = Registry(here.core.catalogs, limit)
    await bind(here, HOME, a_policy("small", "true"))
    assert acting(here, found) is not None
    for number in range(4):
        cluster = f"huge-{number}"
        await here.cluster(cluster)
        await bind(here, cluster, a_policy("p", f"'{number}{'x' * 150_000}' != ''"))
        assert acting(here, found, cluster) is not None
        assert found.size_bytes <= 2 * limit
    # Who was dropped is read again, and still right.
    kept = acting(here, found)
    assert kept is not None and [each.policy.name for each in kept.validating_policies] == ["small"]


async def test_a_policy_weighs_at_least_what_it_takes(here: Cell) -> None:
    """Measured: the weight of many different policies against the memory that is allocated for them."""
    for number in range(40):
        await bind(here, HOME, a_policy(f"p{number}", f"object.metadata.name != '{number}'"))
    found = Registry(here.core.catalogs)
    acting(here, found, OTHER)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        assert acting(here, found) is not None
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken < found.size_bytes < 6 * taken
