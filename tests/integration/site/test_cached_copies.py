"""Consumers read another shard's cached resources from their own shard, also while the provider's shard is down."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Iterator

import pytest

from harness.clients.api import Api, Object, eventually
from harness.clients.exports import BINDINGS, CACHED, bind, binding, unbind
from harness.clients.site_workspaces import CLUSTER, on, ready, workspace
from harness.servers.site import Site
from harness.servers.virtual_workspaces import CACHED_SLICES, offer_plans

PLANS = "/apis/plans.example.com/v1/plans"
PATIENCE_S = 60.0


@pytest.fixture
def provider(site: Site) -> Iterator[Api]:
    """A workspace on shard-1 that offers plans."""
    api = place(site, "shard-1")
    offer_plans(api)
    for name in ("first", "second", "third"):
        api.post(PLANS, plan(name))
    yield api
    api.close()


@pytest.fixture
def consumer(site: Site, provider: Api) -> Iterator[Api]:
    """A workspace on shard-2 that binds them, once it reads them from copies."""
    api = place(site, "shard-2")
    bind_plans(api, provider)
    yield api
    api.close()


def place(site: Site, shard: str) -> Api:
    root = site.root.api("root")
    made = ready(root, workspace(root, selector=on(shard)))
    return site.shards[shard].api(made["spec"]["cluster"])


def bind_plans(api: Api, provider: Api) -> None:
    probe, dry = binding(provider.cluster, "plans", called="probe"), f"{BINDINGS}?dryRun=All"
    eventually(lambda: api.post(dry, probe, expect=0).code == 201, "the export is known", PATIENCE_S)
    bind(api, provider.cluster, "plans")
    eventually(lambda: is_copied(api, provider), "read from copies", PATIENCE_S)


def is_copied(api: Api, provider: Api) -> bool:
    """Whether objects have revisions of the consumer's shard: then they are read from copies."""
    answer = api.get(PLANS, expect=0)
    if answer.code != 200:
        return False
    own = {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in provider.get(PLANS).json["items"]}
    found = {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in answer.json["items"]}
    return bool(found) and found.keys() == own.keys() and all(found[name] != own[name] for name in found)


def plan(name: str, **labels: str) -> Object:
    return {"apiVersion": "plans.example.com/v1", "kind": "Plan", "metadata": {"name": name, "labels": labels}}


def names(api: Api, path: str = PLANS) -> list[str]:
    return [item["metadata"]["name"] for item in api.get(path).json["items"]]


def reads(api: Api, *wanted: str, path: str = PLANS) -> None:
    def look() -> bool:
        answer = api.get(path, expect=0)
        return answer.code == 200 and [each["metadata"]["name"] for each in answer.json["items"]] == sorted(wanted)

    eventually(look, f"reads {wanted}", PATIENCE_S)


@pytest.mark.long
def test_they_are_read_and_watched_with_the_providers_shard_down_and_after_restarts(
    site: Site, provider: Api, consumer: Api
) -> None:
    original = provider.get(f"{PLANS}/first").json
    listed = consumer.get(PLANS).json
    with consumer.watch(f"{PLANS}?watch=1&resourceVersion={listed['metadata']['resourceVersion']}") as events:
        provider.close()
        site.shards["shard-1"].stop()
        found = consumer.get(f"{PLANS}/first").json
        assert found["metadata"]["annotations"]["kcp.io/cluster"] == consumer.cluster
        differing = {"resourceVersion", "annotations"}
        assert without(found["metadata"], differing) == without(original["metadata"], differing)
        assert found.keys() == original.keys()
        first = consumer.get(f"{PLANS}?limit=2").json
        rest = consumer.get(f"{PLANS}?limit=2&continue={first['metadata']['continue']}").json
        assert [each["metadata"]["name"] for each in first["items"] + rest["items"]] == ["first", "second", "third"]
        assert consumer.get(f"{PLANS}/none", expect=404)
        consumer.get(f"{PLANS}?labelSelector=a%3Db")
        site.shards["shard-1"].start()
        provider.post(PLANS, plan("fourth"))
        event = events.next()
        assert (event.type, event.name) == ("ADDED", "fourth")
        assert event.object["metadata"]["annotations"]["kcp.io/cluster"] == consumer.cluster
    site.shards["shard-1"].stop()
    try:
        consumer.close()
        site.shards["shard-2"].restart()
        reads(consumer, "first", "second", "third", "fourth")
        site.nats.stop()
        site.nats.delete_store()
        site.nats.start()
        reads(consumer, "first", "second", "third", "fourth")
    finally:
        provider.close()
        site.shards["shard-1"].start()
    provider.delete(f"{PLANS}/first")
    reads(consumer, "second", "third", "fourth")


def without(metadata: Object, names: set[str]) -> Object:
    return {name: value for name, value in metadata.items() if name not in names}


def test_what_is_relabelled_deselected_or_deleted_leaves_lists_and_watches(provider: Api, consumer: Api) -> None:
    revision = consumer.get(PLANS).json["metadata"]["resourceVersion"]
    with consumer.watch(f"{PLANS}?watch=1&resourceVersion={revision}") as events:
        provider.patch(f"{PLANS}/first", {"metadata": {"labels": {"tier": "gold"}}})
        event = events.next()
        assert (event.type, event.name) == ("MODIFIED", "first")
        provider.patch(f"{CACHED}/plans", {"spec": {"labelSelector": {"matchLabels": {"tier": "gold"}}}})
        gone = {(event.type, event.name) for event in (events.next(), events.next())}
        assert gone == {("DELETED", "second"), ("DELETED", "third")}
        reads(consumer, "first")
        provider.patch(f"{PLANS}/third", {"metadata": {"labels": {"tier": "gold"}}})
        event = events.next()
        assert (event.type, event.name) == ("ADDED", "third")
        provider.patch(f"{PLANS}/first", {"metadata": {"labels": {"tier": None}}})
        event = events.next()
        assert (event.type, event.name) == ("DELETED", "first")
        provider.delete(f"{PLANS}/third")
        event = events.next()
        assert (event.type, event.name) == ("DELETED", "third")
    assert not names(consumer)


def test_a_revision_from_before_all_copies_were_here_is_answered_with_410(provider: Api, consumer: Api) -> None:
    early = provider.get(f"{PLANS}/first").json["metadata"]["resourceVersion"]
    answer = consumer.get(f"{PLANS}?resourceVersion={early}&resourceVersionMatch=Exact&limit=1", expect=0)
    assert answer.code == 410, answer.json
    with consumer.watch(f"{PLANS}?watch=1&resourceVersion={early}") as events:
        assert events.next().type == "ERROR"


def test_an_inactive_workspace_of_a_provider_shows_its_copies_to_nobody(provider: Api, consumer: Api) -> None:
    revision = consumer.get(PLANS).json["metadata"]["resourceVersion"]
    with consumer.watch(f"{PLANS}?watch=1&resourceVersion={revision}") as events:
        provider.patch(CLUSTER, {"metadata": {"annotations": {"core.kcp.io/inactive": "true"}}})
        with contextlib.suppress(http.client.IncompleteRead, OSError):
            assert events.rest() == []
    eventually(lambda: consumer.get(PLANS, expect=0).code == 403, "refused", PATIENCE_S)
    provider.patch(CLUSTER, {"metadata": {"annotations": {"core.kcp.io/inactive": None}}})
    reads(consumer, "first", "second", "third")


@pytest.mark.long
def test_without_a_binding_nothing_is_kept_and_bound_again_they_are_all_there(
    site: Site, provider: Api, consumer: Api
) -> None:
    unbind(consumer, "plans")
    assert consumer.get(PLANS, expect=0).code in {403, 404}
    urls_gone = lambda: not (provider.get(f"{CACHED_SLICES}/plans").json["status"].get("endpoints") or [])  # noqa: E731
    eventually(urls_gone, "the slice has no URL of shard-2", PATIENCE_S)
    provider.post(PLANS, plan("while-away"))
    provider.delete(f"{PLANS}/first")
    bind_plans(consumer, provider)
    reads(consumer, "second", "third", "while-away")


@pytest.mark.long
def test_a_cached_resource_made_anew_under_its_name_shows_its_own_objects_alone(provider: Api, consumer: Api) -> None:
    made = provider.get(f"{CACHED}/plans").json
    spec = {name: made["spec"][name] for name in ("group", "version", "resource", "identity")}
    provider.delete(f"{CACHED}/plans")
    eventually(lambda: consumer.get(PLANS, expect=0).code in {404, 500}, "not offered", PATIENCE_S)
    body = {"apiVersion": made["apiVersion"], "kind": made["kind"], "metadata": {"name": "plans"}}
    selector = {"matchLabels": {"tier": "gold"}}
    provider.post(PLANS, plan("golden", tier="gold"))
    provider.post(CACHED, {**body, "spec": {**spec, "labelSelector": selector}})

    def look() -> bool:
        answer = consumer.get(PLANS, expect=0)
        if answer.code != 200:
            return False
        found = [each["metadata"]["name"] for each in answer.json["items"]]
        assert found == ["golden"], "never one of the earlier resource's"
        return True

    eventually(look, "offered again", PATIENCE_S)
