"""The Shard object: its registration, its labels and annotations, its status, and its digest."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from atoll.machinery.kcp.sharding.shards import (
    EVENT_KEYS,
    HEARTBEAT,
    REGISTERED,
    Load,
    OtherStore,
    Registration,
    digest,
    heartbeat_status,
    is_news,
    load_of,
    new_shard,
    registered,
)
from atoll.machinery.meta.conditions import find

SAID = Registration("eu-1", "https://eu-1:6443", "https://front", "https://eu-1:6443", "store-1", {"region": "eu"})
LOAD = Load(workspaces=12, objects=3456, storage_bytes=1 << 20, capacity_bytes=1 << 40, heartbeat_s=1_700_000_000.0)


def said(**labels: str) -> Registration:
    return Registration("eu-1", SAID.base_url, SAID.external_url, SAID.virtual_workspace_url, "store-1", labels)


def relabelled(shard: dict[str, Any], **labels: str) -> dict[str, Any]:
    """Set labels as `kubectl label --overwrite` does."""
    metadata = shard["metadata"]
    return {**shard, "metadata": {**metadata, "labels": {**metadata["labels"], **labels}}}


def test_a_new_shard_carries_its_name_as_a_label() -> None:
    assert new_shard(SAID)["metadata"]["labels"] == {"region": "eu", "name": "eu-1"}


def test_who_says_the_same_again_writes_nothing() -> None:
    assert registered(new_shard(SAID), SAID) is None


def test_urls_of_today_replace_those_of_yesterday() -> None:
    moved = Registration("eu-1", "https://there", "https://front", "https://there", "store-1", {"region": "eu"})
    found = registered(new_shard(SAID), moved)
    assert found is not None
    assert found["spec"] == {
        "baseURL": "https://there",
        "externalURL": "https://front",
        "virtualWorkspaceURL": "https://there",
    }


def test_keys_of_events_are_announced_and_renewed_and_stay_where_none_are_given() -> None:
    first, second = (msgspec.structs.replace(SAID, event_keys=keys) for keys in (("one",), ("one", "two")))
    shard = registered(new_shard(SAID), first)
    assert shard is not None
    assert shard["metadata"]["annotations"][EVENT_KEYS] == "one"
    assert registered(shard, first) is None
    assert registered(shard, SAID) is None, "the bootstrap does not know them"
    renewed = registered(shard, second)
    assert renewed is not None
    assert renewed["metadata"]["annotations"][EVENT_KEYS] == "one,two"


def test_labels_that_an_operator_added_or_changed_stay() -> None:
    standing = relabelled(new_shard(SAID), region="us", tier="gold")
    assert registered(standing, SAID) is None
    found = registered(standing, said(region="asia"))
    assert found is not None
    assert found["metadata"]["labels"] == {"region": "us", "tier": "gold", "name": "eu-1"}


def test_a_label_that_was_there_before_the_shard_stays() -> None:
    standing = new_shard(said())
    found = registered(relabelled(standing, region="us"), SAID)
    assert found is not None
    assert found["metadata"]["labels"]["region"] == "us"


def test_labels_that_the_shard_set_follow_its_flags() -> None:
    standing = new_shard(SAID)
    found = registered(standing, said(region="us"))
    assert found is not None
    assert found["metadata"]["labels"]["region"] == "us"
    without = registered(found, said())
    assert without is not None
    assert without["metadata"]["labels"] == {"name": "eu-1"}


def test_annotations_of_others_stay() -> None:
    standing = new_shard(SAID)
    standing["metadata"]["annotations"]["experimental.core.kcp.io/unschedulable"] = "yes"
    found = registered(standing, said(region="us"))
    assert found is not None
    assert found["metadata"]["annotations"]["experimental.core.kcp.io/unschedulable"] == "yes"


def test_an_annotation_that_is_no_list_of_labels_is_taken_for_none() -> None:
    standing = new_shard(SAID)
    for text in ("", "{", "[]", "null"):
        standing["metadata"]["annotations"][REGISTERED] = text
        found = registered(standing, said(region="us"))
        assert found is not None
        assert found["metadata"]["labels"]["region"] == "eu", "nobody knows whose it is"


def test_the_name_of_another_store_is_refused() -> None:
    other = Registration("eu-1", "https://x", "https://x", "https://x", "store-2")
    with pytest.raises(OtherStore, match="delete the Shard object"):
        registered(new_shard(SAID), other)


def test_a_shard_that_an_operator_made_before_is_taken_over() -> None:
    by_hand = {"metadata": {"name": "eu-1"}, "spec": {"baseURL": "https://old"}}
    found = registered(by_hand, SAID)
    assert found is not None
    assert found["spec"]["baseURL"] == SAID.base_url


def test_a_status_says_the_load_and_leaves_what_others_wrote() -> None:
    ours = {"type": "Audited", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    shard = {**new_shard(SAID), "status": {"capacity": {"cpu": "4"}, "conditions": [ours], "more": 1}}
    status = heartbeat_status(shard, LOAD)
    assert status["capacity"]["cpu"] == "4"
    assert status["more"] == 1
    assert ours in status["conditions"]
    assert load_of({**shard, "status": status}) == LOAD


def test_each_heartbeat_replaces_the_last() -> None:
    once = {**new_shard(SAID), "status": heartbeat_status(new_shard(SAID), LOAD)}
    later = Load(heartbeat_s=1_700_000_010.0)
    twice = heartbeat_status(once, later)
    assert len(twice["conditions"]) == 1
    beat = find(twice["conditions"], HEARTBEAT)
    assert beat is not None
    assert beat["lastTransitionTime"] == "2023-11-14T22:13:30Z"


def test_a_load_that_nobody_said_is_none() -> None:
    assert load_of({"metadata": {}}) == Load()
    odd = {"status": {"capacity": {"storage": "much", "used.atoll.dev/objects": "-3"}, "conditions": [{"type": "X"}]}}
    assert load_of(odd) == Load()
    assert load_of({"status": {"capacity": {"storage": "100Gi"}}}).capacity_bytes == 100 << 30


def test_a_tenth_more_or_less_is_news_and_a_heartbeat_is_none() -> None:
    before = Load(workspaces=100, objects=1000, storage_bytes=10_000)
    assert not is_news(before, Load(workspaces=105, objects=1000, storage_bytes=10_000, heartbeat_s=9.0))
    assert is_news(before, Load(workspaces=111, objects=1000, storage_bytes=10_000))
    assert is_news(before, Load(workspaces=100, objects=1000, storage_bytes=8_000))
    assert is_news(Load(), Load(workspaces=1))


def test_a_digest_changes_with_all_but_the_status() -> None:
    shard = new_shard(SAID)
    alive = {
        **shard,
        "status": heartbeat_status(shard, LOAD),
        "metadata": {**shard["metadata"], "resourceVersion": "2"},
    }
    assert digest(alive) == digest(shard)
    assert digest(relabelled(shard, region="us")) != digest(shard)
    assert digest({**shard, "spec": {**shard["spec"], "baseURL": "https://x"}}) != digest(shard)
