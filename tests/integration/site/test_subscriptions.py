"""Subscriptions to the events of an identity, whose objects are on several shards."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from atoll.events import Event, subscribe
from atoll.events.subscriber import Subscriber
from atoll.machinery.stream.connection import Connection
from atoll.machinery.stream.consumer.pull_consumer import BatchLimits, PullConsumer
from atoll.machinery.stream.credential_file import read_access
from atoll.machinery.stream.subjects import CHANGES, stream_name
from harness.clients.api import Api, Object, eventually
from harness.clients.exports import BINDINGS, an_object, bind, binding, identity_of, make_export, objects_path, schema
from harness.clients.followed_events import follow
from harness.clients.followed_events import path as follow_path
from harness.clients.site_workspaces import SHARDS as SHARD_OBJECTS
from harness.clients.site_workspaces import WORKSPACES, on, ready, workspace
from harness.servers.site import Site
from harness.servers.subscribed_shard import path
from integration.views.test_apiexport import ENTER, RBAC, give

CONTENT = {"apiGroups": ["apis.kcp.io"], "resources": ["apiexports/content"], "verbs": ["watch"]}
SHARDS = ["root", "shard-1", "shard-2"]
HOME, OTHER = "shard-1", "shard-2"
PATIENCE_S = 60.0


class Provider(NamedTuple):
    """An export on the shard HOME, a workspace on OTHER that binds it, and a user who may watch its content."""

    site: Site
    api: Api
    consumer: Api
    schema: Object
    user: str
    #: The name of the binding by which the user may.
    right: str

    @property
    def request(self) -> Object:
        resource = f"circles.{self.schema['spec']['group']}"
        return {"name": "all", "resources": [resource], "identity": identity_of(self.api, "shapes")}

    def subscribe(self, **content: Any) -> Object:
        made = self.of_user("POST", "", {**self.request, **content}, expect=201)
        return made

    def of_user(self, method: str, name: str, body: Object | None = None, expect: int = 200) -> Object:
        """A request of the user about subscriptions."""
        api = self.site.shards[HOME].api("", self.user)
        return dict(api.send(method, path(self.api.cluster, name), body, expect=expect).json)

    def create(self, name: str) -> None:
        self.consumer.post(objects_path(self.schema), an_object(self.schema, name))


def place(site: Site, admin: Api, shard: str) -> Api:
    made = ready(admin, workspace(admin, selector=on(shard)))
    return site.shards[shard].api(made["spec"]["cluster"])


@pytest.fixture
def provider(site: Site, admin: Api) -> Provider:
    api, consumer = (place(site, admin, shard) for shard in (HOME, OTHER))
    circles, user = schema("circles", f"e{uuid.uuid4().hex[:6]}.example.com"), f"u-{uuid.uuid4().hex[:6]}"
    make_export(api, "shapes", circles)
    give(api, user, ENTER)
    right = give(api, user, CONTENT)
    where = api.cluster
    eventually(lambda: consumer.send("GET", f"/clusters/{where}/api", expect=0).code, "")
    bind(consumer, where, "shapes")
    return Provider(site, api, consumer, circles, user, right)


async def _reached(site: Site, shard: str, consumer: str, pull: bool) -> list[str]:
    access = read_access(site.nats.url, str(site.layout.credential(f"shard-{shard}")))
    connection, stream = await Connection.open(access, "test"), stream_name(CHANGES, shard)
    try:
        if not pull:
            page = await connection.api(f"CONSUMER.LIST.{stream}", {"offset": 0})
            return [each["name"] for each in page["consumers"] or []]
        reader = PullConsumer(connection, stream, consumer, BatchLimits(10))
        await reader.attach()
        found = [str((each.headers or {}).get("ce-subject")) for each in await reader.batch()]
        await reader.close()
        return found
    finally:
        await connection.close()


def has_consumer(site: Site, shard: str, subscription: Object) -> bool:
    name = subscription["consumer"]
    return name in asyncio.run(_reached(site, shard, name, pull=False))


ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
READER = "system:serviceaccount:default:reader"


def silent(provider: Provider, subscription: Object) -> bool:
    return not any(has_consumer(provider.site, shard, subscription) for shard in SHARDS)


def test_a_subscription_of_an_identity_has_a_part_on_each_shard_while_its_owner_has_the_right(
    provider: Provider,
) -> None:
    site, made = provider.site, provider.subscribe()
    assert sorted(each["shard"] for each in made["streams"]) == SHARDS
    assert all(each["begin"]["created"] and each["begin"]["lineage"] for each in made["streams"])
    assert sorted(made["eventKeys"]) == SHARDS
    provider.create("round")
    found = asyncio.run(_reached(site, OTHER, made["consumer"], pull=True))
    assert [each.rpartition("/")[2] for each in found] == ["round"]
    provider.api.delete(f"{RBAC}/clusterrolebindings/{provider.right}")
    eventually(lambda: silent(provider, made), "no shard has a consumer", PATIENCE_S)
    assert provider.of_user("GET", "all")["state"] == "Revoked"
    give(provider.api, provider.user, CONTENT)
    eventually(lambda: has_consumer(site, OTHER, made), "it is back", PATIENCE_S)
    provider.of_user("DELETE", "all")
    eventually(lambda: silent(provider, made), "no shard has a consumer", PATIENCE_S)


def through_the_proxy(site: Site, api: Api, circles: Object, directory: Path) -> Subscriber:
    """A client of the identity of a workspace's export, as a service account of the workspace that has the right."""
    api.post(ACCOUNTS, {"metadata": {"name": "reader"}})
    for rule in (ENTER, CONTENT):
        give(api, READER, rule)
    token = str(api.post(f"{ACCOUNTS}/reader/token", {"spec": {}}).json["status"]["token"])
    authority = directory / "ca.crt"
    authority.write_bytes(site.authority)
    return subscribe(
        site.proxy.url,
        cluster=api.cluster,
        resources=[f"circles.{circles['spec']['group']}"],
        identity=identity_of(api, "shapes"),
        name="late",
        token=token,
        ca_file=str(authority),
    )


async def until_named(events: Subscriber, name: str) -> Event:
    async with asyncio.timeout(120):
        async for event in events:
            if event.key is not None and event.key.name == name:
                return event
    raise AssertionError("the events ended")


@pytest.mark.long
def test_an_identity_is_followed_on_all_shards_through_the_proxy_and_goes_on_after_what_was_had(
    site: Site, provider: Provider
) -> None:
    user, request = site.proxy.api("", provider.user), provider.request
    target = follow_path(provider.api.cluster, *request["resources"], identity=request["identity"], full="true")
    with follow(user, target, accept="text/event-stream") as followed:
        sources, heard = {f"/shards/{shard}/changes" for shard in SHARDS}, set[str]()
        while heard != sources:
            heard.add(followed.next()["source"])
        provider.create("one")
        (event,) = followed.changes(1)
        assert (event["source"], event["data"]["metadata"]["name"]) == (f"/shards/{OTHER}/changes", "one")
        last_id = followed.last_id
    provider.create("two")
    with follow(user, target, accept="text/event-stream", last_event_id=last_id) as followed:
        found = [followed.next()]
        while {each["source"] for each in found if each["atolloperation"] == "BOOKMARK"} != sources:
            found.append(followed.next())
        assert [each["subject"].rpartition("/")[2] for each in found if "subject" in each] == ["two"]
        assert not [each for each in found if each["atolloperation"] == "RESYNC"]
        provider.api.delete(f"{RBAC}/clusterrolebindings/{provider.right}")
        (closed,) = followed.until("CLOSED")[-1:]
        provider.create("three")
        assert (closed["atollstate"], followed.rest()) == ("Revoked", [])


@pytest.mark.long
def test_a_deleted_workspace_is_gone_for_its_subscriber_through_the_proxy_and_unknown_to_others(
    site: Site, admin: Api
) -> None:
    name = workspace(admin, selector=on(HOME))
    cluster = str(ready(admin, name)["spec"]["cluster"])
    inside, user = site.shards[HOME].api(cluster), f"u-{uuid.uuid4().hex[:6]}"
    give(inside, user, ENTER, {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["watch"]})
    subscriber, stranger = site.proxy.api("", user), site.proxy.api("", "stranger")
    there, audit = path(cluster), path(cluster, "audit")
    wanted = {"name": "audit", "resources": ["configmaps"]}
    eventually(lambda: subscriber.send("POST", there, wanted).code in {200, 201}, "the proxy knows it", PATIENCE_S)
    admin.delete(f"{WORKSPACES}/{name}")
    eventually(lambda: subscriber.get(audit, expect=0).json.get("state") == "Gone", "it is gone", PATIENCE_S)
    # Once the proxy has no location for it any more, it is as for any other name.
    eventually(lambda: stranger.get(f"/clusters/{cluster}/api", expect=0).code == 403, "no location", PATIENCE_S)
    assert subscriber.get(audit).json["state"] == "Gone"
    never = "never2kx9v4t"
    for end in ("", "/audit"):
        answers = [stranger.get(path(each) + end, expect=0) for each in (cluster, never)]
        assert [each.code for each in answers] == [403, 403]
        assert answers[0].body.replace(cluster.encode(), b"X") == answers[1].body.replace(never.encode(), b"X")
    subscriber.delete(audit)
    eventually(lambda: subscriber.get(audit, expect=0).code == 403, "nothing of it is left", PATIENCE_S)


@pytest.mark.long
async def test_a_shard_that_comes_later_is_another_stream_of_the_subscription_through_the_proxy(
    site: Site, provider: Provider, tmp_path: Path
) -> None:
    """A client that is connected is told at its control subject, and goes on with all streams."""
    subscriber, late = through_the_proxy(site, provider.api, provider.schema, tmp_path), site.shards[OTHER]
    site.gateway.start()
    late.stop()
    try:
        async with subscriber as events:
            shards = {each.shard for each in events.subscription.streams}
            await asyncio.to_thread(late.start)
            await asyncio.to_thread(provider.create, "late")
            event = await until_named(events, "late")
            assert (event.operation, event.key and event.key.cluster) == ("ADDED", provider.consumer.cluster)
            assert (sorted(shards), len(events.subscription.streams)) == (["root", "shard-1"], 3)
    finally:
        if not late.running:
            late.start()
        site.gateway.stop()


@pytest.mark.long
async def test_a_shard_that_joins_the_site_is_another_stream_of_a_subscription_that_there_was_before(
    tmp_path: Path,
) -> None:
    """It has never been there: no row, no store and no Shard object says anything of it before it starts."""
    with contextlib.ExitStack() as stack:
        site = Site(tmp_path / "site", shards=3)
        stack.callback(site.close)
        late = site.shards[OTHER]
        there = [each for each in reversed(site.processes) if each is not late]
        for each in there:
            each.spawn()
        for each in there:
            each.wait_ready()
        admin, circles = site.root.api("root"), schema("circles", "joined.example.com")
        api = await asyncio.to_thread(place, site, admin, HOME)
        await asyncio.to_thread(make_export, api, "shapes", circles)
        subscriber = await asyncio.to_thread(through_the_proxy, site, api, circles, tmp_path)
        await asyncio.to_thread(site.gateway.start)
        async with subscriber as events:
            assert {each.shard for each in events.subscription.streams} == {"root", HOME}
            await asyncio.to_thread(late.start)
            await asyncio.to_thread(eventually, lambda: joined(admin) == SHARDS, "it has joined", PATIENCE_S)
            consumer = await asyncio.to_thread(place, site, admin, OTHER)
            made, dry = binding(api.cluster, "shapes"), f"{BINDINGS}?dryRun=All"
            await asyncio.to_thread(
                eventually, lambda: consumer.send("POST", dry, made).code == 201, "the export is known", PATIENCE_S
            )
            await asyncio.to_thread(bind, consumer, api.cluster, "shapes")
            await asyncio.to_thread(consumer.post, objects_path(circles), an_object(circles, "round"))
            event = await until_named(events, "round")
            assert (event.operation, event.key and event.key.cluster) == ("ADDED", consumer.cluster)
            assert sorted(each.shard for each in events.subscription.streams) == SHARDS


def joined(admin: Api) -> list[str]:
    """The shards of a site that the root shard knows."""
    return sorted(each["metadata"]["name"] for each in admin.get(SHARD_OBJECTS).json["items"])
