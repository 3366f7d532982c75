"""Without consent there is no indirect read: by verbs that were not granted, or names of hidden objects."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.clients.api import APPLY, Api, configmap, eventually
from harness.clients.exports import BINDINGS, PATIENCE_S, accepted, bind, claim, cluster_of, make_export, schema
from harness.oracles.claim_labels import applied

RBAC = "/apis/rbac.authorization.k8s.io/v1"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
EVERYWHERE = "/*/api/v1/configmaps"
CIRCLES = schema("circles")


ENTER = {"nonResourceURLs": ["/"], "verbs": ["access"]}


@pytest.fixture
def view(provider: Api) -> Iterator[Api]:
    """The view of `shapes` as a user with all rights on its content."""
    made = claim("configmaps", "", "*", "get", "update", "list")
    make_export(provider, "shapes", CIRCLES, claims=[made, claim("apibindings", "apis.kcp.io", "get", "list", "watch")])
    rule = {"apiGroups": ["apis.kcp.io"], "resources": ["apiexports/content"], "verbs": ["*"]}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "content"}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "worker"}]
    provider.post(
        f"{RBAC}/clusterroles",
        {"metadata": {"name": "content"}, "rules": [rule, {"nonResourceURLs": ["/"], "verbs": ["access"]}]},
    )
    provider.post(
        f"{RBAC}/clusterrolebindings", {"metadata": {"name": "content"}, "subjects": subjects, "roleRef": reference}
    )
    api = Api(provider.shard, token="worker-token")
    api.prefix = f"/services/apiexport/{cluster_of(provider)}/shapes/clusters"
    yield api
    api.close()


def seen(view: Api) -> list[str]:
    return [item["metadata"]["name"] for item in view.get(EVERYWHERE).json["items"]]


def answer(consumer: Api, *verbs: str) -> None:
    """Accept the claim on ConfigMaps with some verbs."""
    granted = [accepted({**claim("configmaps"), "verbs": list(verbs)})]
    consumer.patch(f"{BINDINGS}/shapes", {"spec": {"permissionClaims": granted}})
    applied(consumer, "shapes")


def test_what_may_not_be_listed_in_a_workspace_is_not_among_those_of_all(
    provider: Api, consumer: Api, view: Api
) -> None:
    consumer.post(CONFIGMAPS, configmap("before"))
    bind(consumer, provider.cluster, "shapes", [accepted({**claim("configmaps"), "verbs": ["get", "update"]})])
    applied(consumer, "shapes")
    consumer.post(CONFIGMAPS, configmap("after"))
    path = f"/{cluster_of(consumer)}{CONFIGMAPS}"
    view.get(path, expect=403)
    for name in ("before", "after"):
        view.get(f"{path}/{name}")
    assert seen(view) == []
    answer(consumer, "get", "list")
    eventually(lambda: {"before", "after"} <= set(seen(view)), "listed", PATIENCE_S)
    with view.watch(f"{EVERYWHERE}?watch=1") as events:
        assert events.next().type == "ADDED"
        answer(consumer, "get")
        events.until("DELETED")
    eventually(lambda: seen(view) == [], "hidden again", PATIENCE_S)
    view.get(f"{path}/before")


def test_a_watch_of_all_bindings_of_a_workspace_ends_with_the_claim_on_them(
    provider: Api, consumer: Api, view: Api
) -> None:
    made = claim("apibindings", "apis.kcp.io", "get", "list", "watch")
    bind(consumer, provider.cluster, "shapes", [accepted(made)])
    applied(consumer, "shapes")
    with view.watch(f"/{cluster_of(consumer)}{BINDINGS}?watch=1") as events:
        consumer.patch(f"{BINDINGS}/shapes", {"spec": {"permissionClaims": [accepted(made, "Rejected")]}})
        events.rest()


def test_a_name_that_is_taken_by_what_is_hidden_is_taken_and_no_more(provider: Api, consumer: Api, view: Api) -> None:
    granted = claim("configmaps", "", "*")
    consumer.post(CONFIGMAPS, configmap("hidden", {"password": "x"}))
    bind(consumer, provider.cluster, "shapes", [accepted(granted, matchLabels={"team": "a"})])
    applied(consumer, "shapes")
    path, body = f"/{cluster_of(consumer)}{CONFIGMAPS}", configmap("hidden", {"password": "y"})
    for answer_ in (
        view.send("POST", path, body),
        view.send("PATCH", f"{path}/hidden?fieldManager=me&force=true", body, kind=APPLY),
    ):
        assert answer_.code == 409 and "password" not in answer_.message
    assert consumer.get(f"{CONFIGMAPS}/hidden").json["data"] == {"password": "x"}
