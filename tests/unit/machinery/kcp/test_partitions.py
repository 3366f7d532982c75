"""PartitionSets divide shards by the values of their labels."""

from __future__ import annotations

import pytest

from atoll.machinery.kcp.sharding import partitions
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.selectors import SelectorError

EU1 = {"name": "a", "region": "eu", "tier": "gold"}
EU2 = {"name": "b", "region": "eu", "tier": "tin"}
US = {"name": "c", "region": "us", "tier": "gold"}
NOW = "2026-01-01T00:00:00Z"


def a_set(*dimensions: str, **spec: object) -> Object:
    return {"metadata": {"name": "zones", "uid": "u1"}, "spec": {"dimensions": list(dimensions), **spec}}


def a_partition(name: str, labels: dict[str, str], *expressions: Object) -> Object:
    selector: Object = {"matchLabels": labels}
    if expressions:
        selector["matchExpressions"] = list(expressions)
    return {"metadata": {"name": name}, "spec": {"selector": selector}}


def selectors(plan: partitions.PartitionPlan) -> list[Object]:
    return [each["spec"]["selector"] for each in plan.create]


def test_there_is_a_partition_for_each_combination_that_occurs() -> None:
    plan = partitions.plan(a_set("region", "tier"), [EU1, EU2, US, EU1], [])
    assert selectors(plan) == [
        {"matchLabels": {"region": "eu", "tier": "gold"}},
        {"matchLabels": {"region": "eu", "tier": "tin"}},
        {"matchLabels": {"region": "us", "tier": "gold"}},
    ]
    assert (plan.delete, plan.count) == ((), 3)


def test_a_partition_is_the_sets_and_named_by_the_values_in_order_of_their_keys() -> None:
    [made] = partitions.plan(a_set("tier", "region"), [{"region": "EU_West", "tier": "Gold"}], []).create
    assert made["metadata"]["generateName"] == "zones-eu-west-gold-"
    assert made["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "topology.kcp.io/v1alpha1",
            "kind": "PartitionSet",
            "name": "zones",
            "uid": "u1",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def test_a_long_name_is_cut() -> None:
    [made] = partitions.plan(a_set("region"), [{"region": "e" * 63}], []).create
    assert made["metadata"]["generateName"] == f"zones-{'e' * 63}-"
    wide = a_set(*(f"d{number}" for number in range(9)))
    [made] = partitions.plan(wide, [{f"d{number}": "e" * 63 for number in range(9)}], []).create
    assert len(made["metadata"]["generateName"]) == 253


def test_the_sets_own_selector_limits_shards_and_is_part_of_each_partition() -> None:
    expression = {"key": "tier", "operator": "In", "values": ["gold"]}
    chosen = {"matchLabels": {"region": "eu"}, "matchExpressions": [expression]}
    plan = partitions.plan(a_set("name", shardSelector=chosen), [EU1, EU2, US], [])
    assert selectors(plan) == [{"matchLabels": {"name": "a", "region": "eu"}, "matchExpressions": [expression]}]


def test_a_shard_that_lacks_a_dimension_belongs_to_none() -> None:
    assert partitions.plan(a_set("region", "rack"), [EU1, US], []) == partitions.PartitionPlan((), (), 0)


def test_a_set_without_dimensions_has_no_partitions() -> None:
    assert partitions.plan(a_set(), [EU1, US], []) == partitions.PartitionPlan((), (), 0)
    named = partitions.plan(a_set(shardSelector={"matchLabels": {"region": "eu"}}), [EU1, US], [])
    assert selectors(named) == [{"matchLabels": {"region": "eu"}}]


def test_what_is_there_stays_and_what_is_not_wanted_or_there_twice_goes() -> None:
    owned = [
        a_partition("zones-us-2", {"region": "us"}),
        a_partition("zones-us-1", {"region": "us"}),
        a_partition("zones-ap-1", {"region": "ap"}),
        a_partition("zones-eu-1", {"region": "eu"}, {"key": "x", "operator": "Exists"}),
    ]
    plan = partitions.plan(a_set("region"), [EU1, US], owned)
    assert selectors(plan) == [{"matchLabels": {"region": "eu"}}]
    assert plan.delete == ("zones-ap-1", "zones-eu-1", "zones-us-2")
    assert plan.count == 2


def test_a_selector_that_means_nothing_is_told_and_no_partition_touched() -> None:
    wrong = a_set("region", shardSelector={"matchExpressions": [{"key": "x", "operator": "Like"}]})
    with pytest.raises(SelectorError) as caught:
        partitions.plan(wrong, [EU1], [])
    status = partitions.invalid_status({"count": 3}, caught.value, NOW)
    assert [(each["type"], each["status"], each["reason"]) for each in status["conditions"]] == [
        ("PartitionSetValid", "False", "InvalidSelector"),
        ("PartitionsReady", "False", "ErrorGeneratingPartitions"),
    ]
    assert status["count"] == 3


def test_status_tells_the_number_and_that_all_is_well_again() -> None:
    status = partitions.ready_status(partitions.failed_status({}, "no room", NOW), 2, NOW)
    assert status["count"] == 2
    assert [(each["type"], each["status"]) for each in status["conditions"]] == [
        ("PartitionSetValid", "True"),
        ("PartitionsReady", "True"),
    ]
