"""The client sends each verb as a request, and raises the server's own errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypedDict

import pytest
from msgspec.structs import replace

from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Kubeconfig
from atoll.machinery.client.resource import WORKSPACES, Resource
from atoll.machinery.client.target import Fenced
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.status import AlreadyExists, ApiError, Conflict, Details, Expired, NotFound, TooManyRequests
from atoll.machinery.process import pki
from atoll.machinery.wire.client import BadResponse, ConnectionLost, Unreachable
from atoll.machinery.wire.exchange import Exchange
from harness.servers.stand_ins.canned_api import CannedApi, bookmark, event, serving, thing, watching

CONFIGMAPS = Resource("", "v1", "configmaps")
AT = "/clusters/root/api/v1/namespaces/default/configmaps"


@pytest.fixture
async def api() -> AsyncIterator[CannedApi]:
    async with serving(CannedApi()) as api:
        yield api


@pytest.fixture
async def client(api: CannedApi, tmp_path: Path) -> AsyncIterator[Client]:
    target = Kubeconfig.load(str(api.kubeconfig(tmp_path))).target()
    async with Client(target, manager="tester") as client:
        yield client


def named(name: str) -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": "default"}}


async def test_every_verb_goes_to_its_place_with_its_body(api: CannedApi, client: Client) -> None:
    routes = (f"POST {AT}", f"PUT {AT}/a", f"PATCH {AT}/a", f"PATCH {AT}/a/status", f"DELETE {AT}/a")
    for route in (f"GET {AT}/a", *routes):
        api.on(route, thing("a", 1))
    assert (await client.get(CONFIGMAPS, "a", "default"))["metadata"]["name"] == "a"
    await client.create(CONFIGMAPS, named("a"))
    await client.update(CONFIGMAPS, named("a"))
    await client.patch(CONFIGMAPS, "a", {"data": {"k": None}}, "default")
    await client.apply(CONFIGMAPS, named("a"), force=False, subresource="status")
    await client.delete(CONFIGMAPS, "a", "default", propagationPolicy="Foreground")
    assert api.paths() == [f"GET {AT}/a", *routes]
    assert [each.query for each in api.requests[1:4]] == [{"fieldManager": "tester"}] * 3
    assert api.requests[3].headers["content-type"] == ["application/merge-patch+json"]
    assert decode(api.requests[3].body) == {"data": {"k": None}}
    assert api.requests[4].headers["content-type"] == ["application/apply-patch+yaml"]
    assert api.requests[4].query == {"fieldManager": "tester", "force": "false"}
    assert api.requests[5].query == {"propagationPolicy": "Foreground"}
    assert all(each.headers["authorization"] == ["Bearer secret"] for each in api.requests)


async def test_a_view_of_another_cluster_shares_the_connections(api: CannedApi, client: Client) -> None:
    api.on("GET /clusters/root:a/apis/tenancy.kcp.io/v1alpha1/workspaces/w", thing("w", 1))
    api.on("GET /clusters/*/apis/tenancy.kcp.io/v1alpha1/workspaces:abc", {"metadata": {}, "items": []})
    inside = client.cluster("root:a")
    await inside.get(WORKSPACES, "w")
    await inside.close()
    wildcard = Resource("tenancy.kcp.io", "v1alpha1", "workspaces", namespaced=False, identity="abc")
    assert (await client.cluster("*").list(wildcard))["items"] == []


def test_a_name_never_becomes_another_path() -> None:
    assert CONFIGMAPS.path("a/b", "../c?d") == "/api/v1/namespaces/a%2Fb/configmaps/..%2Fc%3Fd"


async def test_a_list_goes_on_until_it_is_whole(api: CannedApi, client: Client) -> None:
    lead, own = {"apiVersion": "v1", "kind": "ConfigMapList"}, {"apiVersion": "other/v1", "kind": "Other"}
    first = {"metadata": {"resourceVersion": "5", "continue": "more", "remainingItemCount": 1}, "items": [{"n": 1}]}
    api.on(f"GET {AT}", {**lead, **first}, {**lead, "metadata": {"resourceVersion": "5"}, "items": [{"n": 2, **own}]})
    found = await client.list(CONFIGMAPS, "default", limit="1", labelSelector="a=b")
    items = [{"n": 1, "apiVersion": "v1", "kind": "ConfigMap"}, {"n": 2, **own}]
    assert found == {**lead, "metadata": {"resourceVersion": "5"}, "items": items}
    assert api.requests[1].query == {"limit": "1", "labelSelector": "a=b", "continue": "more"}


@pytest.mark.parametrize("error", [NotFound("gone"), AlreadyExists("there"), Conflict("changed"), Expired("old")])
async def test_errors_are_the_classes_the_server_raised(api: CannedApi, client: Client, error: ApiError) -> None:
    api.on(f"GET {AT}/a", error)
    with pytest.raises(type(error), match=error.message):
        await client.get(CONFIGMAPS, "a", "default")


async def test_an_error_that_is_no_status_keeps_its_code_and_text(api: CannedApi, client: Client) -> None:
    async def proxy(exchange: Exchange) -> None:
        exchange.reply(502, [], b"bad gateway\n")

    api.on(f"GET {AT}/a", proxy)
    with pytest.raises(ApiError, match=r"^bad gateway$") as caught:
        await client.get(CONFIGMAPS, "a", "default")
    assert caught.value.code == 502


async def test_an_answer_that_is_no_json_object_is_a_bad_response(api: CannedApi, client: Client) -> None:
    async def nonsense(exchange: Exchange) -> None:
        exchange.reply(200, [], b"[1]" if len(api.requests) > 1 else b"<html>")

    api.on(f"GET {AT}/a", nonsense)
    for _ in range(2):
        with pytest.raises(BadResponse):
            await client.get(CONFIGMAPS, "a", "default")


async def test_a_server_that_says_when_to_come_back_is_asked_again(api: CannedApi, client: Client) -> None:
    async def busy(exchange: Exchange) -> None:
        exchange.reply(429, [("retry-after", "0")], b"{}")

    api.on(f"POST {AT}", busy, busy, thing("a", 1))
    await client.create(CONFIGMAPS, named("a"))
    assert len(api.requests) == 3


async def test_asking_again_ends(api: CannedApi, client: Client) -> None:
    async def busy(exchange: Exchange) -> None:
        exchange.reply(503, [("retry-after", "0")], b"")

    api.on(f"GET {AT}/a", busy)
    with pytest.raises(ApiError, match="HTTP 503"):
        await client.get(CONFIGMAPS, "a", "default")
    assert len(api.requests) == 6


async def test_a_refusal_without_a_time_is_an_answer(api: CannedApi, client: Client) -> None:
    api.on(f"POST {AT}", TooManyRequests("no", Details(retry_after_s=1)))
    with pytest.raises(TooManyRequests):
        await client.create(CONFIGMAPS, named("a"))
    assert len(api.requests) == 1


async def test_a_time_to_come_back_that_is_no_number_of_seconds_is_an_answer(api: CannedApi, client: Client) -> None:
    async def later(exchange: Exchange) -> None:
        exchange.reply(503, [("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT")], b"later")

    api.on(f"GET {AT}/a", later)
    with pytest.raises(ApiError, match="later"):
        await client.get(CONFIGMAPS, "a", "default")


async def test_a_watch_gives_events_in_order_and_ends_with_the_server(api: CannedApi, client: Client) -> None:
    api.on(f"GET {AT}", watching(event("ADDED", thing("a", 1)), bookmark(2), then="end"))
    async with client.watch(CONFIGMAPS, "default", resourceVersion="0") as events:
        assert [(each.type, each.object["metadata"]["resourceVersion"]) async for each in events] == [
            ("ADDED", "1"),
            ("BOOKMARK", "2"),
        ]
    assert api.requests[0].query == {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": "0"}


async def test_leaving_a_watch_early_leaves_nothing_behind(api: CannedApi, client: Client) -> None:
    api.on(f"GET {AT}", watching(event("ADDED", thing("a", 1))))
    async with client.watch(CONFIGMAPS, "default") as events:
        async for _ in events:
            break
    api.on(f"GET {AT}/a", thing("a", 1))
    await client.get(CONFIGMAPS, "a", "default")


async def test_an_error_event_is_raised(api: CannedApi, client: Client) -> None:
    api.on(f"GET {AT}", watching(event("ERROR", Expired("too old resource version").status())))
    with pytest.raises(Expired):
        async with client.watch(CONFIGMAPS, "default") as events:
            async for _ in events:
                pass


class Named(TypedDict):
    metadata: dict[str, str]


async def test_of_objects_a_watch_brings_what_is_wanted_and_an_error_whole(api: CannedApi, client: Client) -> None:
    error = event("ERROR", Expired("too old resource version").status())
    api.on(f"GET {AT}", watching(event("ADDED", thing("a", 1, data={"a": "b"})), error))
    seen = list[Object]()
    with pytest.raises(Expired):
        async with client.reduced(Named).watch(CONFIGMAPS, "default") as events:
            async for each in events:
                seen.append(each.object)
    assert seen == [{"metadata": {"name": "a", "resourceVersion": "1"}}]
    async with client.watch(CONFIGMAPS, "default") as events:
        assert (await anext(events)).object["data"] == {"a": "b"}


async def test_a_refused_watch_raises_the_refusal(api: CannedApi, client: Client) -> None:
    with pytest.raises(NotFound):
        async with client.watch(CONFIGMAPS, "default"):
            pass


async def test_a_broken_watch_is_a_lost_connection(api: CannedApi, client: Client) -> None:
    api.on(f"GET {AT}", watching(event("ADDED", thing("a", 1)), then="cut"))
    with pytest.raises(ConnectionLost):
        async with client.watch(CONFIGMAPS, "default") as events:
            async for _ in events:
                pass


async def test_a_line_that_is_no_event_is_a_bad_response(api: CannedApi, client: Client) -> None:
    api.on(f"GET {AT}", watching({"kind": "Status"}))
    with pytest.raises(BadResponse):
        async with client.watch(CONFIGMAPS, "default") as events:
            async for _ in events:
                pass


async def test_a_client_certificate_of_the_kubeconfig_is_presented(tmp_path: Path) -> None:
    async with serving(CannedApi()) as api:
        pair = pki.make_client(pki.make_ca("another"), "jane")
        (tmp_path / "jane.crt").write_bytes(pair.certificate)
        (tmp_path / "jane.key").write_bytes(pair.key)
        file = api.kubeconfig(tmp_path, **{"client-certificate": "jane.crt", "client-key": "jane.key"})
        async with Client.from_kubeconfig(str(file)) as client:
            # The server trusts another authority: its refusal shows that the certificate was presented.
            with pytest.raises((ConnectionLost, Unreachable)):
                await client.raw("GET", "/api")


async def test_a_server_of_another_authority_is_not_talked_to(api: CannedApi, tmp_path: Path) -> None:
    file = api.kubeconfig(tmp_path)
    (tmp_path / "ca.crt").write_bytes(pki.make_ca("another").certificate)
    async with Client.from_kubeconfig(str(file)) as client:
        with pytest.raises(Unreachable, match="certificate verify failed"):
            await client.raw("GET", "/api")


class Tokens:
    """A fence whose token is newer after each refusal."""

    def __init__(self) -> None:
        self.number, self.is_own = 5, True

    def token(self) -> int:
        if not self.is_own:
            raise Fenced("another process has it")
        return self.number

    async def refused(self) -> None:
        self.number += 1


async def test_writes_have_the_token_of_their_fence_and_reads_none(api: CannedApi, client: Client) -> None:
    fence = Tokens()
    fenced = Client(replace(client.target, fence=fence), "root:a", retries=1)
    at = AT.replace("root", "root:a")
    api.on(f"GET {at}/a", thing("a", 1))
    api.on(f"PUT {at}/a", ApiError("newer", code=412, reason=""), thing("a", 2))
    api.on(f"DELETE {at}/a", ApiError("newer", code=412, reason=""))
    async with fenced:
        await fenced.get(CONFIGMAPS, "a", "default")
        await fenced.update(CONFIGMAPS, named("a"))
        with pytest.raises(Fenced):
            await fenced.cluster("root:a").delete(CONFIGMAPS, "a", "default")
        sent = [each.headers.get("atoll-fencing-token") for each in api.requests]
        assert sent == [None, ["5"], ["6"], ["6"], ["7"]]
        fence.is_own = False
        with pytest.raises(Fenced):
            await fenced.update(CONFIGMAPS, named("a"))
    assert len(api.requests) == 5
