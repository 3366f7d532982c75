"""An API whose provider is on one shard, with consumers on all shards."""

from __future__ import annotations

import contextlib
import http.client
import uuid
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest

from harness.clients.api import Api, Object, configmap, eventually
from harness.clients.exports import (
    BINDINGS,
    SCHEMAS,
    SLICES,
    accepted,
    an_object,
    bind,
    binding,
    claim,
    make_export,
    schema,
    unbind,
    wait,
)
from harness.clients.site_workspaces import WORKSPACES, on, ready, workspace
from harness.servers.site import ServingProcess, Site
from harness.servers.virtual_workspaces import CACHED_SLICES, offer_plans

CIRCLES = "/apis/shapes.example.com/v1/namespaces/default/circles"
ALL_CIRCLES = "/apis/shapes.example.com/v1/circles"
TYPES = "/apis/tenancy.kcp.io/v1alpha1/workspacetypes"
PARTITION_SETS, PARTITIONS = (f"/apis/topology.kcp.io/v1alpha1/{name}" for name in ("partitionsets", "partitions"))
PLANS = "/apis/plans.example.com/v1/plans"
SHARDS = "/apis/core.kcp.io/v1alpha1/shards"
CLAIM = claim("configmaps")
PATIENCE_S = 60.0


class Place(NamedTuple):
    """A workspace on a shard: its cluster, its Workspace's name, and its administrator."""

    shard: ServingProcess
    cluster: str
    name: str
    api: Api


def place(site: Site, admin: Api, shard: str) -> Place:
    """A new workspace on a shard, once the shard resolves its path."""
    made = ready(admin, workspace(admin, selector=on(shard)))
    process = site.shards[shard]
    cluster, name = made["spec"]["cluster"], made["metadata"]["name"]
    eventually(lambda: process.api(f"root:{name}").get(TYPES, expect=0).code == 200, f"root:{name} at {shard}")
    return Place(process, cluster, name, process.api(cluster))


@pytest.fixture
def provider(site: Site, admin: Api) -> Place:
    return place(site, admin, "shard-1")


@pytest.fixture
def consumers(site: Site, admin: Api) -> dict[str, Place]:
    return {shard: place(site, admin, shard) for shard in site.shards}


def circle(name: str) -> Object:
    return an_object(schema("circles"), name)


def url_of(process: ServingProcess, provider: Place, name: str = "shapes") -> str:
    return f"{process.url}/services/apiexport/{provider.cluster}/{name}"


def urls(obj: Object) -> set[str]:
    return {each["url"] for each in (obj.get("status") or {}).get("endpoints") or []}


def has(provider: Place, *wanted: ServingProcess, name: str = "shapes") -> Object:
    """Return the slice once it has the URLs of exactly these shards."""
    expected = {url_of(process, provider) for process in wanted}
    return wait(provider.api, f"{SLICES}/{name}", lambda obj: urls(obj) == expected)


def view(place: ServingProcess, provider: Place, cluster: str = "*") -> Api:
    """The provider's client of the view on a shard."""
    found = place.api()
    found.prefix = f"/services/apiexport/{provider.cluster}/shapes/clusters/{cluster}"
    return found


def names(api: Api, path: str = ALL_CIRCLES) -> set[str]:
    answer = api.get(path, expect=0)
    return {item["metadata"]["name"] for item in answer.json["items"]} if answer.code == 200 else set()


def offered(provider: Place, consumers: dict[str, Place], *claims: Object) -> None:
    """Export it, and bind it in every workspace."""
    make_export(provider.api, "shapes", schema("circles"), claims=claims)
    path = f"root:{provider.name}"
    probe, dry = binding(path, "shapes", called="probe"), f"{BINDINGS}?dryRun=All"
    for consumer in consumers.values():
        # Admission finds the export once its shard's rows have arrived.
        eventually(partial(lambda at: at.api.post(dry, probe, expect=0).code == 201, consumer), "known", PATIENCE_S)
        bind(consumer.api, path, "shapes", [accepted(each) for each in claims])


def test_a_provider_sees_consumers_on_three_shards_each_at_its_own_url(
    site: Site, provider: Place, consumers: dict[str, Place]
) -> None:
    offered(provider, consumers)
    found = has(provider, *site.shards.values())
    managers = {
        entry["manager"]
        for entry in found["metadata"]["managedFields"]
        if entry["operation"] == "Apply" and entry.get("subresource") == "status"
    }
    assert managers == set(site.shards)
    for shard, consumer in consumers.items():
        consumer.api.post(CIRCLES, circle(f"on-{shard}"))
    for shard, process in site.shards.items():
        eventually(
            partial(lambda at, one: names(view(at, provider)) == {f"on-{one}"}, process, shard), shard, PATIENCE_S
        )
        remote_view = view(process, provider, consumers[shard].cluster)
        remote_view.post(CIRCLES, circle("by-the-provider"))
        assert names(consumers[shard].api) == {f"on-{shard}", "by-the-provider"}
        for other in set(site.shards) - {shard}:
            # A workspace is reached through its own shard alone.
            assert names(view(process, provider, consumers[other].cluster)) == set()

    unbind(consumers["shard-2"].api, "shapes")
    has(provider, site.shards["root"], site.shards["shard-1"])
    unbind(consumers["shard-1"].api, "shapes")
    has(provider, site.shards["root"])


def test_a_controller_that_watches_every_url_gets_every_consumers_objects(
    site: Site, provider: Place, consumers: dict[str, Place]
) -> None:
    offered(provider, consumers)
    has(provider, *site.shards.values())
    with contextlib.ExitStack() as stack:
        streams = {
            shard: stack.enter_context(view(process, provider).watch(f"{ALL_CIRCLES}?watch=1"))
            for shard, process in site.shards.items()
        }
        for shard, consumer in consumers.items():
            consumer.api.post(CIRCLES, circle(f"new-on-{shard}"))
        for shard, events in streams.items():
            event = events.next()
            assert (event.type, event.object["metadata"]["name"]) == ("ADDED", f"new-on-{shard}")


def test_claims_reach_what_consumers_on_other_shards_grant(
    site: Site, provider: Place, consumers: dict[str, Place]
) -> None:
    offered(provider, consumers, CLAIM)
    has(provider, *site.shards.values())
    maps = "/api/v1/namespaces/default/configmaps"
    for shard, consumer in consumers.items():
        consumer.api.post(maps, configmap("mine", {"who": shard}))
        remote_view = view(site.shards[shard], provider, consumer.cluster)

        def reads(remote_view: Api = remote_view) -> bool:
            answer = remote_view.get(f"{maps}/mine", expect=0)
            return answer.code == 200

        eventually(reads, f"a claimed object on {shard}", PATIENCE_S)
        remote_view.post(maps, configmap("given", {}))
        # Withdrawn in one workspace, it ends only in that one.
        answer = accepted(CLAIM, "Rejected")
        consumer.api.patch(f"{BINDINGS}/shapes", {"spec": {"permissionClaims": [answer]}})
        eventually(
            partial(lambda at: at.get(f"{maps}/mine", expect=0).code == 403, remote_view), "withdrawn", PATIENCE_S
        )


@pytest.mark.long
def test_bound_schemas_of_a_provider_elsewhere_are_shown(
    site: Site, provider: Place, consumers: dict[str, Place]
) -> None:
    offered(provider, consumers)
    wanted = "today.circles.shapes.example.com"
    for shard, consumer in consumers.items():
        remote_view = site.shards[shard].api()
        remote_view.prefix = f"/services/apiresourceschema/{consumer.cluster}/clusters/{consumer.cluster}"
        found = remote_view.get(SCHEMAS).json["items"]
        mine = [item for item in found if item["metadata"]["name"] == wanted]
        assert [item["spec"]["group"] for item in mine] == ["shapes.example.com"], shard
        one = remote_view.get(f"{SCHEMAS}/{wanted}").json
        assert one["metadata"]["annotations"]["kcp.io/cluster"] == provider.cluster
        revision = remote_view.get(SCHEMAS).json["metadata"]["resourceVersion"]
        with remote_view.watch(f"{SCHEMAS}?watch=1&resourceVersion={revision}") as events:
            unbind(consumer.api, "shapes")
            gone = events.next()
            assert (gone.type, gone.object["metadata"]["name"]) == ("DELETED", wanted)


@pytest.mark.long
def test_a_shard_that_is_down_keeps_its_url_and_one_without_a_shard_object_loses_it(
    site: Site, master: Api, provider: Place, consumers: dict[str, Place]
) -> None:
    offered(provider, consumers)
    has(provider, *site.shards.values())
    down = site.shards["shard-2"]
    down.stop()
    try:
        # A later write that arrives here proves that the object was not removed in between.
        unbind(consumers["root"].api, "shapes")
        has(provider, site.shards["shard-1"], down)
        shard = master.get(f"{SHARDS}/shard-2").json
        master.delete(f"{SHARDS}/shard-2")
        has(provider, site.shards["shard-1"])
    finally:
        kept = {key: shard["metadata"].get(key) or {} for key in ("labels", "annotations")}
        body = {**shard, "metadata": {"name": "shard-2", **kept}}
        body.pop("status", None)
        if master.get(f"{SHARDS}/shard-2", expect=0).code == 404:
            master.post(SHARDS, body)
        down.start()
    # The slice has the URLs of both shards again.
    has(provider, site.shards["shard-1"], down)


@pytest.mark.long
def test_a_partition_says_which_shards_are_meant(
    site: Site, admin: Api, master: Api, provider: Place, consumers: dict[str, Place]
) -> None:
    tag = uuid.uuid4().hex[:6]
    labelled = {"root": "north", "shard-1": "north", "shard-2": "south"}
    for shard, value in labelled.items():
        master.patch(f"{SHARDS}/{shard}", {"metadata": {"labels": {f"side-{tag}": value}}})
    try:
        _bind_topology(provider.api)
        provider.api.post(
            PARTITION_SETS,
            {
                "apiVersion": "topology.kcp.io/v1alpha1",
                "kind": "PartitionSet",
                "metadata": {"name": "sides"},
                "spec": {"dimensions": [f"side-{tag}"]},
            },
        )
        wait(provider.api, f"{PARTITION_SETS}/sides", lambda obj: (obj.get("status") or {}).get("count") == 2)
        made = provider.api.get(PARTITIONS).json["items"]
        by_side = {item["spec"]["selector"]["matchLabels"][f"side-{tag}"]: item["metadata"]["name"] for item in made}
        assert set(by_side) == {"north", "south"}
        offered(provider, consumers)
        for side, name in by_side.items():
            provider.api.post(
                SLICES,
                {
                    "apiVersion": "apis.kcp.io/v1alpha1",
                    "kind": "APIExportEndpointSlice",
                    "metadata": {"name": side},
                    "spec": {"export": {"name": "shapes"}, "partition": name},
                },
            )
        has(provider, site.shards["root"], site.shards["shard-1"], name="north")
        has(provider, site.shards["shard-2"], name="south")
        # A shard with other labels leaves one partition and joins the other.
        master.patch(f"{SHARDS}/root", {"metadata": {"labels": {f"side-{tag}": "south"}}})
        has(provider, site.shards["shard-1"], name="north")
        has(provider, site.shards["root"], site.shards["shard-2"], name="south")
    finally:
        for shard in labelled:
            master.patch(f"{SHARDS}/{shard}", {"metadata": {"labels": {f"side-{tag}": None}}})


def _bind_topology(api: Api) -> None:
    if api.get(PARTITION_SETS, expect=0).code != 200:
        bind(api, "root", "topology.kcp.io")


@pytest.fixture
def typed(site: Site, admin: Api) -> Iterator[tuple[Place, str]]:
    """A type of workspaces with an initializer, on shard-1."""
    home = place(site, admin, "shard-1")
    meta = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": {"name": "slow"}}
    spec: dict[str, Any] = {"initializer": True, "extend": {"with": [{"name": "universal", "path": "root"}]}}
    home.api.post(TYPES, {**meta, "spec": spec})
    yield home, f"{home.cluster}:slow"


def test_a_type_names_the_views_of_every_shard_and_they_serve_it(
    site: Site, admin: Api, typed: tuple[Place, str]
) -> None:
    home, initializer = typed
    expected = [
        {"url": f"{site.shards[shard].url}/services/{kind}workspaces/{initializer}", "type": kind}
        for shard in sorted(site.shards)
        for kind in ("initializing", "terminating")
    ]
    wait(home.api, f"{TYPES}/slow", lambda obj: (obj.get("status") or {}).get("virtualWorkspaces") == expected)
    made: dict[str, str] = {}
    for shard in site.shards:
        name = f"slow-{shard}"
        home.api.post(
            WORKSPACES,
            {
                "apiVersion": "tenancy.kcp.io/v1alpha1",
                "kind": "Workspace",
                "metadata": {"name": name},
                "spec": {
                    "type": {"name": "slow", "path": f"root:{home.name}"},
                    "location": {"selector": {"matchLabels": on(shard)}},
                },
            },
        )
        found = ready(home.api, name, "Initializing")
        made[shard] = found["spec"]["cluster"]
    clusters = "/apis/core.kcp.io/v1alpha1/logicalclusters"
    for shard, process in site.shards.items():
        remote_view = process.api()
        remote_view.prefix = f"/services/initializingworkspaces/{initializer}/clusters/*"

        def waits(remote_view: Api = remote_view, cluster: str = made[shard]) -> bool:
            items = remote_view.get(clusters).json["items"]
            return [item["metadata"]["annotations"]["kcp.io/cluster"] for item in items] == [cluster]

        eventually(waits, shard, PATIENCE_S)
        remote_view.prefix = f"/services/initializingworkspaces/{initializer}/clusters/{made[shard]}"
        remote_view.patch(f"{clusters}/cluster/status", {"status": {"initializers": []}})
        ready(home.api, f"slow-{shard}")


@pytest.mark.long
def test_cached_resources_are_read_on_every_shard_while_they_are_bound(
    site: Site, provider: Place, consumers: dict[str, Place]
) -> None:
    offer_plans(provider.api)
    plan = {"apiVersion": "plans.example.com/v1", "kind": "Plan", "metadata": {"name": "first"}}
    provider.api.post(PLANS, plan)
    path = f"root:{provider.name}"
    probe, dry = binding(path, "plans", called="probe"), f"{BINDINGS}?dryRun=All"
    for consumer in consumers.values():
        eventually(partial(lambda at: at.api.post(dry, probe, expect=0).code == 201, consumer), "known", PATIENCE_S)
        bind(consumer.api, path, "plans")
    urls_wanted = {f"{each.url}/services/replication/{provider.cluster}/plans" for each in site.shards.values()}
    wait(provider.api, f"{CACHED_SLICES}/plans", lambda obj: urls(obj) == urls_wanted)
    for consumer in consumers.values():
        eventually(partial(lambda at: names(at.api, PLANS) == {"first"}, consumer), "read by a consumer", PATIENCE_S)
    # Each stream covers all shards, and ends when the workspace no longer binds the API.
    for shard, consumer in consumers.items():
        revision = consumer.api.get(PLANS).json["metadata"]["resourceVersion"]
        name = f"later-{shard}"
        with consumer.api.watch(f"{PLANS}?watch=1&resourceVersion={revision}") as events:
            provider.api.post(PLANS, {**plan, "metadata": {"name": name}})
            event = events.next()
            assert (event.type, event.object["metadata"]["name"]) == ("ADDED", name)
            assert event.object["metadata"]["annotations"]["kcp.io/cluster"] == consumer.cluster
            unbind(consumer.api, "plans")
            with contextlib.suppress(http.client.IncompleteRead, OSError):
                assert events.rest() == []
        assert consumer.api.get(PLANS, expect=0).code in {403, 404}


@pytest.mark.long
def test_a_view_of_each_consumer_is_reached_through_the_proxy(
    site: Site, provider: Place, consumers: dict[str, Place]
) -> None:
    offered(provider, consumers)
    service = f"/services/apiexport/{provider.cluster}/shapes"
    for shard, consumer in consumers.items():
        consumer.api.post(CIRCLES, circle(f"on-{shard}"))
        for prefix in (
            f"{service}/clusters/{consumer.cluster}",
            f"{service}/clusters/root:{consumer.name}",
            f"/clusters/{consumer.cluster}{service}/clusters/*",
            f"/clusters/root:{consumer.name}{service}/clusters/{consumer.cluster}",
        ):
            through, stranger = site.proxy.api(), site.proxy.api("", "bob")
            through.prefix = stranger.prefix = prefix
            eventually(partial(lambda api, found: names(api) == {found}, through, f"on-{shard}"), prefix, PATIENCE_S)
            stranger.get(ALL_CIRCLES, expect=403)
