"""The apiresourceschema view: a consumer sees the schemas that its bindings bind, and nothing else of providers."""

from __future__ import annotations

from typing import Any

import pytest

from harness.clients.api import TABLE, Api
from harness.clients.exports import (
    BINDINGS,
    EXPORTS,
    SCHEMAS,
    bind,
    binding,
    cluster_of,
    make_export,
    resource_of,
    schema,
    unbind,
    wait_bound,
)

RBAC = "/apis/rbac.authorization.k8s.io/v1"
OWN = {"tenancy.kcp.io", "topology.kcp.io"}


def view(consumer: Api, prefix: str = "/clusters/*", token: str = "") -> Api:
    provider_api = Api(consumer.shard, token=token or consumer.token)
    provider_api.prefix = f"/services/apiresourceschema/{cluster_of(consumer)}{prefix}"
    return provider_api


def groups(provider_api: Api) -> set[str]:
    """The schemas it shows, without those of the system's own exports."""
    items = provider_api.get(SCHEMAS).json["items"]
    return {item["metadata"]["name"] for item in items if item["spec"]["group"] not in OWN}


def test_it_shows_what_is_bound_and_nothing_else_of_the_provider(provider: Api, consumer: Api) -> None:
    circles = schema("circles")
    make_export(provider, "shapes", circles)
    provider.post(SCHEMAS, schema("secrets", "plans.example.com"))
    provider_api = view(consumer)
    assert groups(provider_api) == set()
    bind(consumer, provider.cluster, "shapes")
    assert groups(provider_api) == {"today.circles.shapes.example.com"}
    found = provider_api.get(SCHEMAS).json["items"]
    mine = next(item for item in found if item["spec"]["group"] == "shapes.example.com")
    original = provider.get(f"{SCHEMAS}/today.circles.shapes.example.com").json
    assert {**mine, "apiVersion": "", "kind": ""} == {**original, "apiVersion": "", "kind": ""}
    unbind(consumer, "shapes")
    assert groups(provider_api) == set()


@pytest.mark.parametrize("prefix", ["", "/clusters/own"])
def test_one_schema_is_read_by_its_name(provider: Api, consumer: Api, prefix: str) -> None:
    make_export(provider, "shapes", schema("circles"))
    provider.post(SCHEMAS, schema("squares"))
    bind(consumer, provider.cluster, "shapes")
    provider_api = view(consumer, prefix.replace("own", cluster_of(consumer)))
    assert provider_api.get(f"{SCHEMAS}/today.circles.shapes.example.com").json["kind"] == "APIResourceSchema"
    provider_api.get(f"{SCHEMAS}/today.squares.shapes.example.com", expect=404)
    assert groups(provider_api) == {"today.circles.shapes.example.com"}


def test_a_watch_follows_bindings_that_come_and_go(provider: Api, consumer: Api) -> None:
    make_export(provider, "shapes", schema("circles"), schema("squares"))
    provider_api = view(consumer)
    revision = provider_api.get(SCHEMAS).json["metadata"]["resourceVersion"]
    with provider_api.watch(f"{SCHEMAS}?watch=1&resourceVersion={revision}") as events:
        bind(consumer, provider.cluster, "shapes")
        added = [events.next(), events.next()]
        assert {(event.type, event.name) for event in added} == {
            ("ADDED", "today.circles.shapes.example.com"),
            ("ADDED", "today.squares.shapes.example.com"),
        }
        annotated = {"metadata": {"annotations": {"note": "new"}}}
        provider.patch(f"{SCHEMAS}/today.circles.shapes.example.com", annotated)
        changed = events.next()
        assert (changed.type, changed.object["metadata"]["annotations"]["note"]) == ("MODIFIED", "new")
        unbind(consumer, "shapes")
        gone = [events.next(), events.next()]
        assert {(event.type, event.name) for event in gone} == {
            ("DELETED", "today.circles.shapes.example.com"),
            ("DELETED", "today.squares.shapes.example.com"),
        }
        assert all(event.revision > changed.revision for event in gone)


@pytest.mark.long
def test_a_watch_goes_on_where_it_was_left(provider: Api, consumer: Api) -> None:
    make_export(provider, "shapes", schema("circles"))
    provider_api = view(consumer)
    before = provider_api.get(SCHEMAS).json["metadata"]["resourceVersion"]
    bind(consumer, provider.cluster, "shapes")
    between = provider_api.get(SCHEMAS).json["metadata"]["resourceVersion"]
    unbind(consumer, "shapes")
    with provider_api.watch(f"{SCHEMAS}?watch=1&resourceVersion={before}&timeoutSeconds=1") as events:
        assert [event.type for event in events.rest()] == ["ADDED", "DELETED"]
    with provider_api.watch(f"{SCHEMAS}?watch=1&resourceVersion={between}&timeoutSeconds=1") as events:
        assert [event.type for event in events.rest()] == ["DELETED"]


def test_a_new_schema_of_the_same_export_takes_the_place_of_the_old(provider: Api, consumer: Api) -> None:
    make_export(provider, "shapes", schema("circles"))
    bind(consumer, provider.cluster, "shapes")
    newer = schema("circles", prefix="tomorrow")
    provider.post(SCHEMAS, newer)
    provider_api = view(consumer)
    revision = provider_api.get(SCHEMAS).json["metadata"]["resourceVersion"]
    with provider_api.watch(f"{SCHEMAS}?watch=1&resourceVersion={revision}") as events:
        provider.patch(f"{EXPORTS}/shapes", {"spec": {"resources": [resource_of(newer)]}})
        seen = [events.next(), events.next()]
        assert {(event.type, event.name.partition(".")[0]) for event in seen} == {
            ("ADDED", "tomorrow"),
            ("DELETED", "today"),
        }
    assert groups(provider_api) == {"tomorrow.circles.shapes.example.com"}


def test_it_is_read_only_and_says_so(provider: Api, consumer: Api) -> None:
    make_export(provider, "shapes", schema("circles"))
    bind(consumer, provider.cluster, "shapes")
    provider_api = view(consumer, "")
    path = f"{SCHEMAS}/today.circles.shapes.example.com"
    for method, url in (("POST", SCHEMAS), ("DELETE", path), ("PATCH", path), ("PUT", path), ("DELETE", SCHEMAS)):
        code = provider_api.send(method, url, {"metadata": {"name": "x"}}).code
        assert code in {403, 405}, (method, code)
    resources = provider_api.get("/apis/apis.kcp.io/v1alpha1").json["resources"]
    assert [(each["name"], each["verbs"]) for each in resources] == [("apiresourceschemas", ["get", "list", "watch"])]
    assert [group["name"] for group in provider_api.get("/apis").json["groups"]] == ["apis.kcp.io"]
    assert "apis/apis.kcp.io/v1alpha1" in provider_api.get("/openapi/v3").json["paths"]
    rows = provider_api.get(SCHEMAS, accept=TABLE).json["rows"]
    assert "today.circles.shapes.example.com" in {row["cells"][0] for row in rows}


def test_selectors_and_pages_work_as_anywhere(provider: Api, consumer: Api) -> None:
    names = [schema(f"shape{letter}s") for letter in "abcde"]
    make_export(provider, "shapes", *names)
    bind(consumer, provider.cluster, "shapes")
    provider_api = view(consumer)
    provider.patch(f"{SCHEMAS}/today.shapeas.shapes.example.com", {"metadata": {"labels": {"first": "yes"}}})
    chosen = provider_api.get(f"{SCHEMAS}?labelSelector=first%3Dyes").json["items"]
    assert [item["metadata"]["name"] for item in chosen] == ["today.shapeas.shapes.example.com"]
    paged: list[Any] = []
    token = ""
    while True:
        page = provider_api.get(f"{SCHEMAS}?limit=2&continue={token}").json
        assert len(page["items"]) <= 2
        paged.extend(item["metadata"]["name"] for item in page["items"])
        token = page["metadata"].get("continue", "")
        if not token:
            break
    assert paged == [item["metadata"]["name"] for item in provider_api.get(SCHEMAS).json["items"]]


def test_who_may_not_get_the_bindings_gets_nothing(provider: Api, consumer: Api) -> None:
    make_export(provider, "shapes", schema("circles"))
    bind(consumer, provider.cluster, "shapes")
    stranger = view(consumer, token="bob-token")
    for path in (SCHEMAS, "/apis", "/openapi/v3", f"{SCHEMAS}?watch=1", "/nothing"):
        assert stranger.get(path, expect=403).json["reason"] == "Forbidden"
    rules = [
        {"apiGroups": ["apis.kcp.io"], "resources": ["apibindings"], "verbs": ["get"]},
        {"nonResourceURLs": ["/"], "verbs": ["access"]},
    ]
    consumer.post(f"{RBAC}/clusterroles", {"metadata": {"name": "reader"}, "rules": rules})
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"}
    consumer.post(
        f"{RBAC}/clusterrolebindings", {"metadata": {"name": "reader"}, "subjects": [subject], "roleRef": reference}
    )
    assert groups(stranger) == {"today.circles.shapes.example.com"}
    stranger.get(BINDINGS, expect=404)
    revision = stranger.get(SCHEMAS).json["metadata"]["resourceVersion"]
    with stranger.watch(f"{SCHEMAS}?watch=1&resourceVersion={revision}") as events:
        consumer.delete(f"{RBAC}/clusterrolebindings/reader")
        assert events.rest() == []
    stranger.get(SCHEMAS, expect=403)


def test_another_cluster_is_not_reached_through_it(provider: Api, consumer: Api) -> None:
    provider_api = view(consumer, f"/clusters/{cluster_of(provider)}")
    provider_api.get(SCHEMAS, expect=404)
    nowhere = Api(consumer.shard, user="shard-admin")
    nowhere.get(f"/services/apiresourceschema/unheardof/clusters/*{SCHEMAS}", expect=404)


def test_bindings_of_two_exports_are_shown_together(provider: Api, consumer: Api) -> None:
    make_export(provider, "shapes", schema("circles"))
    make_export(provider, "planets", schema("moons", "planets.example.com"))
    for name in ("shapes", "planets"):
        consumer.post(BINDINGS, binding(provider.cluster, name))
        wait_bound(consumer, name)
    assert groups(view(consumer)) == {"today.circles.shapes.example.com", "today.moons.planets.example.com"}
