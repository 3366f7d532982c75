"""What a subscription selects, and that it carries no body unless it may."""

from __future__ import annotations

import pytest

from atoll.machinery.meta.names import ResourceType
from atoll.machinery.stream.subjects import parse
from atoll.machinery.stream.tenants.subscription_consumer import (
    SubscriptionLimits,
    consumer_config,
    subscription_filters,
)

CONFIGMAPS = ResourceType("", "configmaps", "core")
GADGETS = ResourceType("example.com", "gadgets", "3f" * 32)
ODD = ("*", ">", ".*>", "a.b", "a b", "", "=")


def test_in_a_cluster_each_type_is_one_literal_subject_beside_the_control_subject() -> None:
    found = subscription_filters("root", [CONFIGMAPS, GADGETS, CONFIGMAPS], "2x9k4vtw")
    assert found == [
        "atoll.changes.root.core.core.configmaps.2x9k4vtw",
        f"atoll.changes.root.{'3f' * 32}.example_com.gadgets.2x9k4vtw",
        "atoll.changes.root.-",
    ]


@pytest.mark.parametrize("odd", ODD)
def test_no_name_widens_a_filter(odd: str) -> None:
    for type, cluster in ((ResourceType(odd, odd, odd), "c"), (CONFIGMAPS, odd or "x")):
        first = subscription_filters("root", [type], cluster)[0]
        assert len(first.split(".")) == 7
        assert not set(first) & set("*> ")
        parsed = parse(first)
        assert (parsed.type, parsed.cluster) == (type, cluster)


def test_in_all_clusters_only_types_of_one_export_are_selected() -> None:
    assert subscription_filters("root", [GADGETS], "")[0] == f"atoll.changes.root.{'3f' * 32}.example_com.gadgets.*"
    for identity in ("core", "local", ""):
        with pytest.raises(ValueError, match="one export"):
            subscription_filters("root", [GADGETS, ResourceType("example.com", "gadgets", identity)], "")


def test_events_have_no_body_unless_they_may() -> None:
    thin = consumer_config("n", ["s"], SubscriptionLimits(), {"deliver_policy": "new"})
    full = consumer_config("n", ["s"], SubscriptionLimits(), {"deliver_policy": "new"}, full=True)
    assert (thin["headers_only"], full["headers_only"]) == (True, False)


def test_where_it_begins_changes_nothing_else() -> None:
    start = {"deliver_policy": "new", "name": "other", "filter_subjects": [">"], "max_batch": 0}
    config = consumer_config("n", ["s"], SubscriptionLimits(), start)
    assert (config["name"], config["filter_subjects"], config["max_batch"]) == ("n", ["s"], 500)
    assert config["deliver_policy"] == "new"
