"""ResourceQuotas and the limit of all objects over the wire: refusals by every door, exact counts, prompt status."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from harness.clients.api import APPLY, Api, Object, configmap, crd, define, eventually, workspace_under
from harness.clients.exports import an_object, bind, cluster_of, make_export, objects_path, schema

WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
CLUSTER = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
NAMESPACES = "/api/v1/namespaces"
MAX_TOTAL = "core.kcp.io/max-total-objects"
CIRCLES = schema("circles")
#: A second is promised; a busy machine takes longer.
PROMPT_S = 60.0


def content(namespace: str, plural: str = "configmaps") -> str:
    return f"{NAMESPACES}/{namespace}/{plural}"


def namespace(api: Api, name: str) -> str:
    """A new namespace with its default objects, which quotas count too, as those of `default`: the path of its
    ConfigMaps.
    """
    api.post(NAMESPACES, {"metadata": {"name": name}})
    for each in ("default", name):
        eventually(partial(_has_its_objects, api, each), f"the objects of {each}")
    return content(name)


def _has_its_objects(api: Api, namespace: str) -> bool:
    """Whether the last of them is there: the account comes before it."""
    return api.get(f"{content(namespace)}/kube-root-ca.crt", expect=0).code == 200


def quota(api: Api, hard: dict[str, str], name: str = "q", within: str = "here", **metadata: Any) -> Object:
    body = {"metadata": {"name": name, **metadata}, "spec": {"hard": hard}}
    return dict(api.post(content(within, "resourcequotas"), body).json)


def wide(api: Api, hard: dict[str, str]) -> Object:
    """A quota of the whole logical cluster, which has a namespace `admin`."""
    annotations = {"experimental.quota.kcp.io/cluster-scoped": "true"}
    return quota(api, hard, "wide", "admin", annotations=annotations)


def used(api: Api, name: str = "q", within: str = "here") -> dict[str, str]:
    status = api.get(f"{content(within, 'resourcequotas')}/{name}").json.get("status") or {}
    return dict(status.get("used") or {})


def workspace(**metadata: Any) -> Object:
    return {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": metadata}


def held_now(api: Api, plural: str = "configmaps") -> int:
    """The number of objects of a core kind in the workspace."""
    return len(api.get(f"/api/v1/{plural}").json["items"])


def shows(api: Api, expected: dict[str, str], name: str = "q", within: str = "here") -> None:
    eventually(lambda: used(api, name, within) == expected, f"{name} shows {expected}", PROMPT_S)


def test_a_create_above_a_quota_is_forbidden_in_kubernetes_words(api: Api) -> None:
    path = namespace(api, "here")
    body = {"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": "2", "configmaps": "2"}}}
    assert api.post(content("here", "resourcequotas"), body).warnings == []
    api.post(path, configmap("a"))
    refused = api.post(path, configmap("b"), expect=403)
    assert refused.message == (
        'configmaps "b" is forbidden: exceeded quota: q, requested: configmaps=1,count/configmaps=1, '
        "used: configmaps=2,count/configmaps=2, limited: configmaps=2,count/configmaps=2"
    )
    assert (refused.json["reason"], refused.json["details"]) == ("Forbidden", {"name": "b", "kind": "configmaps"})
    api.delete(f"{path}/a")
    api.post(path, configmap("b"))


def test_every_way_to_create_is_refused_at_a_quota(api: Api) -> None:
    path = namespace(api, "here")
    quota(api, {"count/configmaps": "1"})
    applied = {"apiVersion": "v1", **configmap("a")}
    generated = {"metadata": {"generateName": "g-"}}
    api.post(path, configmap("a"), expect=403)
    assert 'configmaps "g-' in api.post(path, generated, expect=403).message
    api.patch(f"{path}/a?fieldManager=m", applied, APPLY, expect=403)
    api.post(f"{path}?dryRun=All", configmap("a"), expect=403)
    api.patch(f"{path}/a?fieldManager=m&dryRun=All", applied, APPLY, expect=403)
    assert len(api.get(path).json["items"]) == 1
    # What exists may be changed.
    api.patch(f"{path}/kube-root-ca.crt", {"metadata": {"labels": {"a": "b"}}})


def test_a_dry_run_charges_nothing_and_is_refused_as_the_write_would_be(api: Api) -> None:
    path = namespace(api, "here")
    quota(api, {"count/configmaps": "2"})
    for _ in range(3):
        api.post(f"{path}?dryRun=All", configmap("a"))
    api.post(path, configmap("a"))
    dry, wet = (api.post(f"{path}{query}", configmap("b"), expect=403).message for query in ("?dryRun=All", ""))
    assert dry == wet


def test_fifty_writers_leave_exactly_what_a_quota_allows(api: Api) -> None:
    path = namespace(api, "here")
    quota(api, {"count/configmaps": "10"})

    def write(number: int) -> int:
        own = api.at(api.cluster)
        code = own.post(path, configmap(f"c{number}"), expect=0).code
        own.close()
        return code

    with ThreadPoolExecutor(50) as writers:
        codes = list(writers.map(write, range(50)))
    assert sorted(set(codes)) == [201, 403]
    assert codes.count(201) == 9
    assert len(api.get(path).json["items"]) == 10
    shows(api, {"count/configmaps": "10"})


def test_the_status_follows_the_use_and_the_spec(api: Api) -> None:
    path = namespace(api, "here")
    quota(api, {"count/configmaps": "2k", "secrets": "3", "resourcequotas": "5", "cpu": "1", "pods": "4"})
    rest = {"secrets": "0", "resourcequotas": "1", "cpu": "0", "pods": "0"}
    shows(api, {"count/configmaps": "1", **rest})
    api.post(path, configmap("a"))
    shows(api, {"count/configmaps": "2", **rest})
    api.delete(f"{path}/a")
    shows(api, {"count/configmaps": "1", **rest})
    api.patch(f"{content('here', 'resourcequotas')}/q", {"spec": {"hard": {"count/secrets": "1", "pods": None}}})
    rest = {"secrets": "0", "resourcequotas": "1", "cpu": "0"}
    shows(api, {"count/configmaps": "1", "count/secrets": "0", **rest})
    found = api.get(f"{content('here', 'resourcequotas')}/q").json
    assert found["status"]["hard"] == found["spec"]["hard"]


def test_many_creates_are_few_writes_of_the_status(api: Api) -> None:
    path = namespace(api, "here")
    quota(api, {"count/configmaps": "100"})
    shows(api, {"count/configmaps": "1"})
    revision = api.get(content("here", "resourcequotas")).json["metadata"]["resourceVersion"]
    for number in range(40):
        api.post(path, configmap(f"c{number}"))
    shows(api, {"count/configmaps": "41"})
    with api.watch(f"{content('here', 'resourcequotas')}?watch=1&resourceVersion={revision}") as events:
        seen = 0
        while events.next().object["status"]["used"] != {"count/configmaps": "41"}:
            seen += 1
    assert seen < 20


def test_a_status_that_somebody_wrote_stays_and_decides_nothing(api: Api) -> None:
    path = namespace(api, "here")
    quota(api, {"count/configmaps": "1"})
    shows(api, {"count/configmaps": "1"})
    status = {"hard": {"count/configmaps": "9"}, "used": {"count/configmaps": "0"}}
    api.patch(f"{content('here', 'resourcequotas')}/q/status", {"status": status})
    api.post(path, configmap("a"), expect=403)
    # What the log says later is done: so is that change of a status.
    quota(api, {"count/secrets": "1"}, "later")
    shows(api, {"count/secrets": "0"}, "later")
    assert used(api) == {"count/configmaps": "0"}


def test_a_quota_of_the_whole_workspace_counts_all_namespaces_and_the_workspaces(api: Api) -> None:
    name = api.post(WORKSPACES, workspace(generateName="w-")).json["metadata"]["name"]
    namespace(api, "admin")
    count = held_now(api)
    wide(api, {"count/configmaps": str(count + 2), "count/workspaces.tenancy.kcp.io": "1"})
    shows(api, {"count/configmaps": str(count), "count/workspaces.tenancy.kcp.io": "1"}, "wide", "admin")
    api.post(content("default"), configmap("a"))
    api.post(content("admin"), configmap("a"))
    assert "exceeded quota: wide" in api.post(content("default"), configmap("b"), expect=403).message
    refused = api.post(WORKSPACES, workspace(name="more"), expect=403).message
    assert refused.startswith('workspaces.tenancy.kcp.io "more" is forbidden: exceeded quota: wide, requested: ')
    api.delete(f"{WORKSPACES}/{name}")
    eventually(lambda: api.post(WORKSPACES, workspace(name="more"), expect=0).code == 201, "room for another")


def test_the_systems_own_objects_are_counted_and_come_once_there_is_room(api: Api) -> None:
    namespace(api, "admin")
    count, accounts = held_now(api), held_now(api, "serviceaccounts")
    wide(api, {"count/configmaps": str(count), "count/serviceaccounts": "99"})
    api.post(NAMESPACES, {"metadata": {"name": "here"}})
    path = f"{content('here')}/kube-root-ca.crt"
    # The account of the namespace comes before its ConfigMap.
    shows(api, {"count/configmaps": str(count), "count/serviceaccounts": str(accounts + 1)}, "wide", "admin")
    api.get(path, expect=404)
    api.patch(f"{content('admin', 'resourcequotas')}/wide", {"spec": {"hard": {"count/configmaps": str(count + 1)}}})
    eventually(lambda: api.get(path, expect=0).code == 200, "its CA")


def test_deleting_a_namespace_gives_back_what_it_held(api: Api) -> None:
    namespace(api, "admin")
    count = held_now(api)
    path = namespace(api, "here")
    wide(api, {"count/configmaps": str(count + 7)})
    for number in range(6):
        api.post(path, configmap(f"c{number}"))
    api.post(path, configmap("more"), expect=403)
    api.delete(f"{NAMESPACES}/here")
    eventually(lambda: api.get(f"{NAMESPACES}/here", expect=0).code == 404, "the namespace gone")
    shows(api, {"count/configmaps": str(count)}, "wide", "admin")


def test_a_deleted_collection_is_given_back(api: Api) -> None:
    path = namespace(api, "here")
    quota(api, {"count/configmaps": "4"})
    for number in range(3):
        api.post(path, configmap(f"c{number}", labels={"mine": "yes"}))
    api.delete(f"{path}?labelSelector=mine%3Dyes")
    shows(api, {"count/configmaps": "1"})
    api.post(path, configmap("a"))


def test_custom_kinds_are_counted(api: Api) -> None:
    define(api, crd("squares"))
    namespace(api, "here")
    path = "/apis/shapes.example.com/v1/namespaces/here/squares"
    body = {"apiVersion": "shapes.example.com/v1", "kind": "Square"}
    quota(api, {"count/squares.shapes.example.com": "1"})
    api.post(path, {**body, "metadata": {"name": "a"}})
    refused = api.post(path, {**body, "metadata": {"name": "b"}}, expect=403).message
    assert refused.startswith('squares.shapes.example.com "b" is forbidden: exceeded quota: q, ')


def test_bound_kinds_are_counted_also_where_the_provider_writes_through_its_view(api: Api, admin: Api) -> None:
    provider = admin.at(workspace_under(admin, type_="universal"))
    make_export(provider, "shapes", CIRCLES)
    bind(api, provider.cluster, "shapes")
    namespace(api, "here")
    quota(api, {"count/circles.shapes.example.com": "2"})
    here = objects_path(CIRCLES, namespace="here")
    view = Api(provider.shard)
    view.prefix = f"/services/apiexport/{cluster_of(provider)}/shapes/clusters/{cluster_of(api)}"
    view.post(here, an_object(CIRCLES, "a"))
    api.post(here, an_object(CIRCLES, "b"))
    for door in (view, api):
        assert "exceeded quota: q" in door.post(here, an_object(CIRCLES, "c"), expect=403).message
    view.delete(f"{here}/a")
    shows(api, {"count/circles.shapes.example.com": "1"})
    view.close()
    provider.close()


def test_a_quota_of_too_many_resources_is_invalid(api: Api) -> None:
    hard = {f"count/k{number}.example.com": "1" for number in range(1001)}
    body = {"metadata": {"name": "q"}, "spec": {"hard": hard}}
    refused = api.post(content("default", "resourcequotas"), body, expect=422).message
    assert "spec.hard: Too many: 1001: must have at most 1000 items" in refused


# --- all objects of a logical cluster


@pytest.fixture
def held(api: Api, master: Api) -> Callable[[], int]:
    """Lets a workspace hold one object more than it does; returns the number that it may hold."""

    def limit() -> int:
        # What controllers write into a new workspace counts too.
        written = {content("default") + "/kube-root-ca.crt", content("default", "serviceaccounts") + "/default"}
        eventually(lambda: all(api.send("GET", path).code == 200 for path in written), "they are written")
        cluster = master.at(api.cluster)
        cluster.patch(CLUSTER, {"metadata": {"annotations": {MAX_TOTAL: "1"}}})
        message = api.post(content("default"), configmap("probe"), expect=403).message
        count = int(message.partition("limit (")[2].partition("/")[0])
        cluster.patch(CLUSTER, {"metadata": {"annotations": {MAX_TOTAL: str(count + 1)}}})
        cluster.close()
        return count + 1

    return limit


def test_a_workspace_holds_no_more_objects_than_its_annotation_allows(api: Api, held: Callable[[], int]) -> None:
    limit = held()
    api.post(f"{content('default')}?dryRun=All", configmap("a"))
    api.post(content("default"), configmap("a"))
    cluster = cluster_of(api)
    for query in ("", "?dryRun=All"):
        assert api.post(f"{content('default')}{query}", configmap("b"), expect=403).message == (
            f'configmaps "b" is forbidden: logical cluster "{cluster}" has reached its total object count limit '
            f"({limit}/{limit} objects); delete objects to free up capacity"
        )
    event = {"metadata": {"name": "e"}, "involvedObject": {"namespace": "default", "name": "a", "kind": "ConfigMap"}}
    api.post(content("default", "events"), event)
    api.delete(f"{content('default')}/a")
    api.post(content("default"), configmap("b"))


def test_users_of_a_workspace_do_not_set_how_many_objects_it_holds(api: Api, held: Callable[[], int]) -> None:
    limit = held()
    binding = {
        "metadata": {"name": "alice"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    }
    api.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    alice = Api(api.shard, api.cluster, token="alice-token")
    patch = {"metadata": {"annotations": {MAX_TOTAL: "100000"}}}
    assert eventually(lambda: alice.patch(CLUSTER, patch, expect=0).code != 403, "alice is an admin")
    assert alice.patch(CLUSTER, patch, expect=422).json["reason"] == "Invalid"
    assert api.get(CLUSTER).json["metadata"]["annotations"][MAX_TOTAL] == str(limit)
    alice.close()
