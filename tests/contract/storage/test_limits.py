"""Quotas and the limit of all objects: charged and held in the write's transaction, wherever the writer runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from atoll.machinery.kinds.kubernetes.usage.charge import Amount
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.types import (
    CLUSTER_ROLE_BINDINGS,
    CONFIG_MAPS,
    EVENTS,
    LOGICAL_CLUSTERS,
    RESOURCE_QUOTAS,
    SECRETS,
    copies_of,
)
from atoll.machinery.storage.contract import DeletePrefix, GuardFailed, Put, Scope, Store
from atoll.machinery.storage.limits import Limit, WithinLimits
from harness.data.stores import create, delete, key, put

WIDGETS = ResourceType("example.com", "widgets")
BOUND_WIDGETS = ResourceType("example.com", "widgets", "a" * 64)
WORKSPACES = ResourceType("tenancy.kcp.io", "workspaces")
WIDE = {"annotations": {"experimental.quota.kcp.io/cluster-scoped": "true"}}


def quota(name: str = "q", namespace: str = "default", *, expected: int = 0, wide: bool = False, **hard: str) -> Put:
    """A ResourceQuota; `__` in a name of `hard` stands for `/`, `_` for a dot."""
    named = {each.replace("__", "/").replace("_", "."): value for each, value in hard.items()}
    where = ObjectKey(RESOURCE_QUOTAS, "root", namespace, name)
    return put(where, expected=expected, metadata=WIDE if wide else None, spec={"hard": named})


def logical_cluster(limit: str | None = None, *, expected: int = 0, phase: str = "Ready") -> Put:
    metadata = {"annotations": {"core.kcp.io/max-total-objects": limit}} if limit is not None else None
    where = ObjectKey(LOGICAL_CLUSTERS, "root", "", "cluster")
    return put(where, expected=expected, metadata=metadata, status={"phase": phase})


def used(
    store: Store, type: ResourceType = CONFIG_MAPS, namespace: str = "default"
) -> list[tuple[str, Amount, Amount]]:
    with store.snapshot() as snapshot:
        return [(limit.resource, limit.used, limit.hard) for limit in snapshot.limits(type, "root", namespace)]


async def refused(store: Store, *mutations: Put) -> WithinLimits:
    with pytest.raises(GuardFailed) as raised:
        await store.submit(mutations)
    assert isinstance(raised.value.guard, WithinLimits)
    return raised.value.guard


async def test_a_quota_counts_what_is_there_and_what_comes_and_goes(store: Store) -> None:
    [first] = await create(store, "a")
    await store.submit([put(key("a", namespace="other"))])
    await store.submit([quota(count__configmaps="3")])
    assert used(store) == [("count/configmaps", 1, 3)]
    await store.submit([put(key("b"))])
    [second] = await store.submit([put(key("a"), expected=first)])
    assert used(store) == [("count/configmaps", 2, 3)]
    await store.submit([delete(key("a"), second)])
    assert used(store) == [("count/configmaps", 1, 3)]
    assert used(store, namespace="other") == []


async def test_a_create_above_a_quota_fails_with_the_use_before_it(store: Store) -> None:
    await store.submit([quota(count__configmaps="1", configmaps="5")])
    await create(store, "a")
    guard = await refused(store, put(key("b")))
    assert guard.key == key("b")
    assert guard.exceeded == (Limit("q", "count/configmaps", 1, 1),)
    assert used(store) == [("configmaps", 1, 5), ("count/configmaps", 1, 1)]


async def test_many_writers_at_once_leave_exactly_what_is_allowed(store: Store) -> None:
    await store.submit([quota(count__configmaps="10")])
    done = await asyncio.gather(*(store.submit([put(key(f"n{i}"))]) for i in range(50)), return_exceptions=True)
    assert sum(isinstance(each, list) for each in done) == 10
    assert {type(each) for each in done if isinstance(each, BaseException)} == {GuardFailed}
    assert used(store) == [("count/configmaps", 10, 10)]


async def test_a_submit_that_exceeds_a_quota_in_its_middle_charges_nothing(store: Store) -> None:
    await store.submit([quota(count__configmaps="2")])
    assert (await refused(store, *(put(key(name)) for name in "abc"))).exceeded[0].used == 2
    assert used(store) == [("count/configmaps", 0, 2)]


async def test_each_of_several_quotas_refuses(store: Store) -> None:
    await store.submit([quota("wide", "admin", wide=True, count__configmaps="2")])
    await store.submit([quota("x", count__configmaps="5"), quota("y", count__configmaps="1")])
    await create(store, "a")
    assert (await refused(store, put(key("b")))).exceeded == (Limit("y", "count/configmaps", 1, 1),)
    await store.submit([put(key("b", namespace="other"))])
    guard = await refused(store, put(key("c", namespace="other")))
    assert guard.exceeded == (Limit("wide", "count/configmaps", 2, 2),)


async def test_a_quota_counts_itself_and_the_others(store: Store) -> None:
    await store.submit([quota(resourcequotas="2")])
    await store.submit([quota("second", configmaps="1")])
    assert used(store, RESOURCE_QUOTAS) == [("resourcequotas", 2, 2)]
    await refused(store, quota("third"))


async def test_prefix_deletes_give_back(store: Store) -> None:
    await store.submit([quota(count__configmaps="3")])
    await store.submit([put(key(name)) for name in "abc"])
    await store.submit([DeletePrefix(Scope(CONFIG_MAPS, "root", "default"))])
    assert used(store) == [("count/configmaps", 0, 3)]
    await create(store, "d")


async def test_a_cluster_wide_quota_counts_every_namespace_and_cluster_scoped_kinds(store: Store) -> None:
    await store.submit([put(key("a", namespace=namespace)) for namespace in ("x", "y")])
    await store.submit([put(key("w", namespace="", type=WORKSPACES))])
    await store.submit([quota("wide", "admin", wide=True, count__configmaps="3", count__workspaces_tenancy_kcp_io="1")])
    assert used(store, namespace="z") == [("count/configmaps", 2, 3)]
    assert used(store, WORKSPACES, "") == [("count/workspaces.tenancy.kcp.io", 1, 1)]
    await refused(store, put(key("v", namespace="", type=WORKSPACES)))
    await store.submit([put(key("v", namespace="", type=WORKSPACES, cluster="other"))])


async def test_the_annotation_counts_in_the_namespace_admin_alone(store: Store) -> None:
    await store.submit([quota("wide", "default", wide=True, count__configmaps="0")])
    await refused(store, put(key("a")))
    await store.submit([put(key("a", namespace="other"))])


async def test_a_kind_is_counted_under_every_identity(store: Store) -> None:
    await store.submit([put(key("own", type=WIDGETS))])
    await store.submit([quota(count__widgets_example_com="2")])
    await store.submit([put(key("bound", type=BOUND_WIDGETS))])
    assert used(store, WIDGETS) == used(store, BOUND_WIDGETS) == [("count/widgets.example.com", 2, 2)]
    await refused(store, put(key("more", type=BOUND_WIDGETS)))


async def test_sealed_kinds_are_counted(store: Store) -> None:
    await store.submit([quota(secrets="1")])
    [revision] = await store.submit([put(key("s", type=SECRETS))])
    await refused(store, put(key("t", type=SECRETS)))
    await store.submit([delete(key("s", type=SECRETS), revision)])
    assert used(store, SECRETS) == [("secrets", 0, 1)]


async def test_a_limit_may_be_lowered_below_its_use_and_raised_again(store: Store) -> None:
    [first] = await store.submit([quota(count__configmaps="5")])
    await store.submit([put(key(name)) for name in "abc"])
    [second] = await store.submit([quota(expected=first, count__configmaps="1", secrets="7")])
    assert used(store) == [("count/configmaps", 3, 1)]
    assert used(store, SECRETS) == [("secrets", 0, 7)]
    await refused(store, put(key("d")))
    await store.submit([quota(expected=second, count__configmaps="4")])
    assert used(store, SECRETS) == []
    await create(store, "d")


async def test_a_quota_may_become_one_of_the_whole_cluster(store: Store) -> None:
    await store.submit([put(key("a", namespace=namespace)) for namespace in ("x", "admin")])
    [first] = await store.submit([quota("q", "admin", count__configmaps="9")])
    assert used(store, namespace="admin") == [("count/configmaps", 1, 9)]
    await store.submit([quota("q", "admin", expected=first, wide=True, count__configmaps="9")])
    assert used(store, namespace="admin") == used(store, namespace="x") == [("count/configmaps", 2, 9)]


async def test_without_its_quota_a_namespace_is_not_limited(store: Store) -> None:
    [revision] = await store.submit([quota(count__configmaps="0")])
    await refused(store, put(key("a")))
    await store.submit([delete(ObjectKey(RESOURCE_QUOTAS, "root", "default", "q"), revision)])
    await create(store, "a")
    assert used(store) == []


async def test_a_quota_with_scopes_or_of_events_or_of_compute_resources_counts_no_objects_of_other_kinds(
    store: Store,
) -> None:
    where = ObjectKey(RESOURCE_QUOTAS, "root", "default", "scoped")
    await store.submit([put(where, spec={"scopes": ["BestEffort"], "hard": {"pods": "0", "count/configmaps": "0"}})])
    await store.submit([quota(count__events="0", cpu="1", services_nodeports="0")])
    await create(store, "a")
    await store.submit([put(key("e", type=EVENTS))])
    assert used(store) == used(store, EVENTS) == []


async def test_one_kind_has_a_hundred_quotas_in_a_namespace_at_most(store: Store) -> None:
    await store.submit([quota(f"q{i}", count__configmaps="5") for i in range(100)])
    guard = await refused(store, quota("more", count__configmaps="5"))
    assert guard.exceeded == (Limit("", "configmaps", 100, 100),)
    await store.submit([quota("more", "other", count__configmaps="5")])


@pytest.fixture
async def limited(store: Store) -> AsyncIterator[Store]:
    """A cluster of two objects, of which one is its LogicalCluster, and an Event, that may hold three."""
    await store.submit([logical_cluster("3"), put(key("e", type=EVENTS)), put(key("a"))])
    yield store


async def test_a_cluster_holds_no_more_objects_than_its_annotation_allows(limited: Store) -> None:
    await create(limited, "b")
    guard = await refused(limited, put(key("c", namespace="other")))
    assert guard.exceeded == (Limit("", "", 3, 3),)
    with limited.snapshot() as snapshot:
        assert (snapshot.total("root").used, snapshot.total("root").hard) == (3, 3)
    await limited.submit([put(key("c", cluster="elsewhere"))])
    await limited.submit([DeletePrefix(Scope(CONFIG_MAPS, "root", "default"))])
    await limited.submit([put(key("c")), put(key("d"))])


async def test_events_and_what_a_cluster_needs_to_become_ready_are_not_refused(limited: Store) -> None:
    await create(limited, "b")
    await limited.submit([put(key("e2", type=EVENTS))])
    await limited.submit([put(key("workspace-admin", namespace="", type=CLUSTER_ROLE_BINDINGS))])
    await refused(limited, put(key("another", namespace="", type=CLUSTER_ROLE_BINDINGS)))


async def test_copies_for_other_shards_neither_count_nor_are_refused(store: Store) -> None:
    plans = copies_of("plans")
    await store.submit([put(key(name, namespace="", type=plans)) for name in ("x", "y")])
    await store.submit([logical_cluster("3"), put(key("a"))])
    await create(store, "b")
    await store.submit([put(key("z", namespace="", type=plans))])
    with store.snapshot() as snapshot:
        assert snapshot.total("root").used == 3
    await store.submit([DeletePrefix(Scope(plans, "root"))])
    with store.snapshot() as snapshot:
        assert snapshot.total("root").used == 3
    await refused(store, put(key("c")))


async def test_a_cluster_that_is_not_ready_is_not_limited(store: Store) -> None:
    [revision] = await store.submit([logical_cluster("1", phase="Initializing")])
    await create(store, "a")
    await store.submit([logical_cluster("1", expected=revision)])
    await refused(store, put(key("b")))


async def test_the_annotation_may_be_changed_and_taken_away(limited: Store) -> None:
    with limited.snapshot() as snapshot:
        revision = snapshot.revision_of(ObjectKey(LOGICAL_CLUSTERS, "root", "", "cluster"))
    [revision] = await limited.submit([logical_cluster("1", expected=revision)])
    await refused(limited, put(key("b")))
    for limit in ("0", "many", None):
        [revision] = await limited.submit([logical_cluster(limit, expected=revision)])
        await create(limited, f"b-{limit}".lower())
