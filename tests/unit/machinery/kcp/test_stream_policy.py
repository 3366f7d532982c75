"""Which kinds the streams carry by default."""

from __future__ import annotations

import pytest

from atoll.machinery.kcp.sharding.stream_policy import KcpStreamPolicy
from atoll.machinery.meta.names import LOCAL, ObjectKey, ResourceType
from atoll.machinery.meta.types import SHARED_SUBSCRIPTIONS, WHOLE_COPIES, copies_of

ROLE = ResourceType("rbac.authorization.k8s.io", "clusterroles")


@pytest.mark.parametrize(
    ("type", "expected"),
    [
        (ResourceType("coordination.k8s.io", "leases"), False),
        (ResourceType("", "events"), False),
        (ResourceType("events.k8s.io", "events"), False),
        (ResourceType("example.com", "events"), True),
        (ResourceType("", "configmaps"), True),
        (ResourceType("coordination.k8s.io", "leases", LOCAL), True),
    ],
)
def test_leases_and_events_are_not_published(type: ResourceType, expected: bool) -> None:
    assert KcpStreamPolicy().published(type) is expected


def test_the_list_of_exclusions_is_configuration() -> None:
    assert KcpStreamPolicy(excluded=()).published(ResourceType("", "events"))
    assert not KcpStreamPolicy(excluded=("configmaps",)).published(ResourceType("", "configmaps"))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'{"metadata":{"annotations":{"internal.kcp.io/replicate":"apis.kcp.io"}}}', True),
        (b'{"metadata":{"annotations":{"internal.kcp.io/replicate":""}}}', False),
        (b'{"metadata":{"labels":{"internal.kcp.io/replicate":"x"}}}', False),
        (b'{"metadata":{},"note":"internal.kcp.io/replicate"}', False),
        (b'{"metadata":{}}', False),
    ],
)
def test_roles_are_replicated_if_their_annotation_says_so(value: bytes, expected: bool) -> None:
    assert KcpStreamPolicy().replicated(ObjectKey(ROLE, "c1", "", "r"), value) is expected


def test_of_a_system_cluster_what_a_shard_says_of_itself_is_replicated_and_no_look_alike() -> None:
    shards = ResourceType("core.kcp.io", "shards", "ab" * 32)
    assert KcpStreamPolicy().may_replicate(shards)
    assert KcpStreamPolicy().replicated(ObjectKey(shards, "root", "", "root"), b"{}")
    assert not KcpStreamPolicy().replicated(ObjectKey(shards, "system:shard", "", "root"), b"{}")
    assert KcpStreamPolicy().replicated(ObjectKey(SHARED_SUBSCRIPTIONS, "system:shard", "", "root"), b"{}")
    assert not KcpStreamPolicy().may_replicate(ResourceType("core.kcp.io", "shards", LOCAL))
    assert not KcpStreamPolicy().may_replicate(ResourceType("", "secrets"))


def test_copies_of_cached_resources_are_replicated_and_not_published() -> None:
    copies, policy = copies_of("plans"), KcpStreamPolicy()
    assert policy.may_replicate(copies) and policy.replicated(ObjectKey(copies, "c1", "", "a"), b"{}")
    assert not policy.published(copies)
    assert not policy.replicated(ObjectKey(copies, "system:copies", "c1", "a"), b"{}"), "what a shard keeps of others"
    assert not policy.published(WHOLE_COPIES) and not policy.may_replicate(WHOLE_COPIES)
    look_alike = ResourceType(copies.group, copies.resource, LOCAL)
    assert policy.published(look_alike) and not policy.may_replicate(look_alike)
