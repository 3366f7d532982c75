"""What objects use of quotas beside their number: charged in the write's transaction, wherever the writer runs."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from atoll.machinery.kinds.kubernetes.usage.charge import Amount
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.types import RESOURCE_QUOTAS
from atoll.machinery.storage.contract import DeletePrefix, GuardFailed, Mutation, Put, Scope, Store
from atoll.machinery.storage.limits import WithinLimits
from harness.data.stores import delete, key, put

PODS, SERVICES = ResourceType("", "pods", "a" * 64), ResourceType("", "services", "a" * 64)
CLAIMS = ResourceType("", "persistentvolumeclaims", "a" * 64)


def pod(name: str = "a", *, namespace: str = "default", expected: int = 0, phase: str = "", **requests: str) -> Put:
    where = key(name, namespace=namespace, type=PODS)
    resources = {"requests": requests, "limits": requests}
    spec = {"containers": [{"name": "c", "resources": resources}]}
    return put(where, expected=expected, spec=spec, status={"phase": phase or "Pending"})


def service(name: str = "a", *, expected: int = 0, **spec: Any) -> Put:
    return put(key(name, type=SERVICES), expected=expected, spec={"ports": [{"port": 1}, {"port": 2}], **spec})


def quota(name: str = "q", namespace: str = "default", *, expected: int = 0, wide: bool = False, **spec: Any) -> Put:
    where = ObjectKey(RESOURCE_QUOTAS, "root", namespace, name)
    annotations = {"annotations": {"experimental.quota.kcp.io/cluster-scoped": "true"}} if wide else None
    return put(where, expected=expected, metadata=annotations, spec=spec)


def used(store: Store, type: ResourceType = PODS, namespace: str = "default") -> dict[str, Amount]:
    with store.snapshot() as snapshot:
        return {f"{limit.quota}:{limit.resource}": limit.used for limit in snapshot.limits(type, "root", namespace)}


async def refused(store: Store, *mutations: Mutation) -> WithinLimits:
    with pytest.raises(GuardFailed) as raised:
        await store.submit(mutations)
    assert isinstance(raised.value.guard, WithinLimits)
    return raised.value.guard


async def test_what_pods_ask_for_is_summed_when_a_quota_appears_and_as_they_come_and_go(store: Store) -> None:
    [first] = await store.submit([pod("a", cpu="100m")])
    await store.submit([quota(hard={"cpu": "1", "pods": "5", "limits.cpu": "2"})])
    assert used(store) == {"q:cpu": Decimal("0.1"), "q:limits.cpu": Decimal("0.1"), "q:pods": 1}
    await store.submit([pod("b", cpu="900m")])
    assert used(store)["q:cpu"] == 1
    guard = await refused(store, pod("c", cpu="1n"))
    assert [(limit.resource, limit.used, limit.hard) for limit in guard.exceeded] == [("cpu", 1, 1)]
    assert [str(requested) for requested in guard.requested] == ["1E-9"]
    await store.submit([delete(key("a", type=PODS), first)])
    await store.submit([pod("c", cpu="0.1")])
    assert used(store)["q:cpu"] == 1 and used(store)["q:pods"] == 2


async def test_many_writers_at_once_use_exactly_what_is_allowed(store: Store) -> None:
    await store.submit([quota(hard={"requests.cpu": "1"})])
    writes = (store.submit([pod(f"n{number}", cpu="100m")]) for number in range(30))
    done = await asyncio.gather(*writes, return_exceptions=True)
    assert sum(isinstance(each, list) for each in done) == 10
    assert used(store) == {"q:requests.cpu": 1}


async def test_a_pod_that_ends_gives_back_and_what_only_its_status_says_is_not_refused(store: Store) -> None:
    await store.submit([quota(hard={"cpu": "1", "pods": "1", "count/pods": "2"})])
    [first] = await store.submit([pod("a", cpu="1")])
    [second] = await store.submit([pod("a", expected=first, phase="Failed", cpu="1")])
    assert used(store) == {"q:count/pods": 1, "q:cpu": 0, "q:pods": 0}
    await store.submit([pod("b", cpu="1")])
    await store.submit([pod("a", expected=second, phase="Running", cpu="1")])
    assert used(store) == {"q:count/pods": 2, "q:cpu": 2, "q:pods": 2}
    await store.submit([DeletePrefix(Scope(PODS, "root", "default"))])
    assert used(store) == {"q:count/pods": 0, "q:cpu": 0, "q:pods": 0}


async def test_an_update_that_asks_for_more_is_refused_and_one_for_less_is_not(store: Store) -> None:
    await store.submit([quota(hard={"services.nodeports": "3", "services.loadbalancers": "0"})])
    [first] = await store.submit([service("a", type="NodePort")])
    [other] = await store.submit([service("b")])
    guard = await refused(store, service("b", expected=other, type="NodePort"))
    assert (guard.exceeded[0].used, guard.requested) == (2, (2,))
    assert [limit.resource for limit in (await refused(store, service("c", type="LoadBalancer"))).exceeded] == [
        "services.loadbalancers",
        "services.nodeports",
    ]
    await store.submit([service("a", expected=first)])
    await store.submit([service("b", expected=other, type="NodePort")])
    assert used(store, SERVICES) == {"q:services.loadbalancers": 0, "q:services.nodeports": 2}


async def test_every_container_says_what_a_quota_requires(store: Store) -> None:
    [first] = await store.submit([pod("old")])
    await store.submit([quota(hard={"limits.cpu": "9", "requests.memory": "9", "pods": "9"})])
    guard = await refused(store, pod("a", cpu="1"))
    assert guard.missing == (("requests.memory", ("c",)),)
    assert guard.exceeded[0].quota == "q"
    await store.submit([pod("a", cpu="1", memory="1")])
    await store.submit([pod("old", expected=first, phase="Running")])


async def test_a_quota_with_scopes_counts_what_is_in_all_of_them(store: Store) -> None:
    await store.submit([quota("best", hard={"pods": "1"}, scopes=["BestEffort"])])
    named = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
    both: Object = {"scopes": ["NotBestEffort"], "scopeSelector": {"matchExpressions": [named]}}
    await store.submit([quota("high", hard={"pods": "0", "cpu": "0", "count/configmaps": "0"}, **both)])
    await store.submit([pod("a"), pod("b", cpu="1"), put(key("c"))])
    assert used(store) == {"best:pods": 1, "high:cpu": 0, "high:pods": 0}
    assert (await refused(store, pod("d"))).exceeded[0].quota == "best"
    important = pod("e", cpu="1")
    spec = {"priorityClassName": "high", "containers": [{"resources": {"requests": {"cpu": "1"}}}]}
    over = (await refused(store, put(important.key, spec=spec))).exceeded
    assert [(limit.quota, limit.resource) for limit in over] == [("high", "cpu"), ("high", "pods")]


async def test_a_pod_that_leaves_a_scope_is_given_back_there(store: Store) -> None:
    await store.submit([quota("ends", hard={"pods": "1"}, scopes=["Terminating"])])
    where = key("a", type=PODS)
    [first] = await store.submit([put(where, spec={"activeDeadlineSeconds": 60})])
    [second] = await store.submit([put(where, expected=first, spec={})])
    assert used(store) == {"ends:pods": 0}
    await store.submit([put(key("b", type=PODS), spec={"activeDeadlineSeconds": 60})])
    await refused(store, put(where, expected=second, spec={"activeDeadlineSeconds": 60}))


async def test_storage_is_limited_in_all_and_by_class(store: Store) -> None:
    gold = "gold.storageclass.storage.k8s.io/requests.storage"
    await store.submit([quota(hard={"requests.storage": "3Gi", gold: "1Gi"})])

    def claim(name: str, storage: str, of_class: str = "", expected: int = 0) -> Put:
        spec = {"storageClassName": of_class, "resources": {"requests": {"storage": storage}}}
        return put(key(name, type=CLAIMS), expected=expected, spec=spec)

    [first] = await store.submit([claim("a", "1Gi", "gold")])
    assert [limit.resource for limit in (await refused(store, claim("b", "1", "gold"))).exceeded] == [gold]
    await store.submit([claim("b", "1Gi")])
    assert [limit.resource for limit in (await refused(store, claim("a", "3Gi", "gold", first))).exceeded] == [
        gold,
        "requests.storage",
    ]
    assert used(store, CLAIMS) == {f"q:{gold}": 1 << 30, "q:requests.storage": 2 << 30}


async def test_a_changed_quota_sums_what_it_did_not_count_before(store: Store) -> None:
    await store.submit([pod("a", cpu="1", memory="2"), pod("b", namespace="other", cpu="4")])
    [first] = await store.submit([quota(hard={"cpu": "9"})])
    [second] = await store.submit([quota(expected=first, hard={"cpu": "1", "memory": "9"})])
    assert used(store) == {"q:cpu": 1, "q:memory": 2}
    await store.submit([quota(expected=second, hard={"cpu": "1"}, scopes=["Terminating"])])
    assert used(store) == {"q:cpu": 0}
    await store.submit([quota("wide", "admin", wide=True, hard={"cpu": "5"})])
    assert used(store, namespace="third") == {"wide:cpu": 5}
    assert (await refused(store, pod("c", namespace="third", cpu="1", memory="1"))).exceeded[0].quota == "wide"
