"""Events of a deleted workspace: the proxy has no location for it, and leads its subscribers to the shard it was on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from atoll.machinery.meta.names import ROOT
from harness.servers.in_process.front_proxy import BEARER, Front, Line, Scripted, bearer, claims, front, scripted

GONE, NEVER = "gone2kx9v4tw", "never2kx9v4t"
SUBSCRIPTIONS = "/services/events/clusters/{}/subscriptions"
NONE = b'{"items": []}'


class Scene:
    """A proxy before two shards that answer about subscriptions, of which `west` has some of alice's to GONE."""

    def __init__(self) -> None:
        self.targets: list[tuple[str, str, str]] = []
        self.proxy: Front
        self.silent = False

    def shard(self, name: str) -> Callable[[Line], Awaitable[None]]:
        async def answer(line: Line) -> None:
            while True:
                head = (await line.head()).decode()
                target, fields = (
                    head.split(" ")[1],
                    dict(each.split(": ", 1) for each in head.split("\r\n")[1:] if each),
                )
                said = claims(fields["atoll-assertion"]) if "atoll-assertion" in fields else {"user": "", "cluster": ""}
                self.targets.append((name, target, said["user"]))
                assert said["cluster"] in target
                if self.silent and name == "east":
                    await line.reader.read()
                found = name == "west" and said["user"] == "alice" and GONE in target
                body = b'{"items": [{"state": "Gone"}]}' if found else NONE
                await line.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

        return answer

    async def ask(self, cluster: str, credential: str, end: str = "") -> tuple[int, bytes]:
        client = await self.proxy.connect()
        answer = await client.ask(SUBSCRIPTIONS.format(cluster) + end, headers=credential)
        return answer.status, answer.body.replace(cluster.encode(), b"X")


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene()
    async with AsyncExitStack() as stack:
        shards: dict[str, Scripted] = {}
        for name in ("east", "west"):
            shards[name] = await stack.enter_async_context(scripted(scene.shard(name)))
        urls = {"east": shards["east"].url, "west": shards["west"].url, ROOT: shards["east"].url}
        scene.proxy = await stack.enter_async_context(front(tmp_path, urls))
        yield scene


async def test_a_subscriber_is_led_to_the_shard_of_its_subscriptions_and_others_learn_nothing(scene: Scene) -> None:
    status, body = await scene.ask(GONE, BEARER, "/audit")
    assert (status, json.loads(body)) == (200, {"items": [{"state": "Gone"}]})
    assert scene.targets[-1] == ("west", SUBSCRIPTIONS.format(GONE) + "/audit", "alice")
    unknown = await scene.ask(NEVER, bearer("bob"))
    assert unknown[0] == 403
    assert await scene.ask(GONE, bearer("bob")) == unknown
    assert (await scene.ask(NEVER, BEARER))[0] == 403


async def test_a_shard_that_is_silent_keeps_no_subscriber_from_another(scene: Scene) -> None:
    scene.silent = True
    assert (await scene.ask(GONE, BEARER))[0] == 200
    assert (await scene.ask(GONE, bearer("bob")))[0] == 403


@pytest.mark.parametrize("credential", ["", "Authorization: Bearer x.y.z\r\n"])
async def test_for_who_shows_no_credential_that_is_known_no_shard_is_asked(scene: Scene, credential: str) -> None:
    assert (await scene.ask(GONE, credential))[0] in {401, 403}
    assert (await scene.ask("root:org:none", BEARER))[0] == 403
    assert not [each for each in scene.targets if "/services/events" in each[1]]
