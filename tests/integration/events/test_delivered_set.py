"""What NATS delivers over random changes of rights, bindings and objects is what an authorized watch gives.

The watch is one of the same user from the beginning on, once the right is held at the end. What is written while the
right is gone, and its consumer as well, is delivered to nobody before the right is back.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
import pytest_asyncio
from nats.errors import Error

from harness.clients.api import Api, Object, configmap, eventually, workspace_under
from harness.clients.exports import an_object, bind, cluster_of, identity_of, make_export, objects_path, schema
from harness.clients.exports import unbind as take_binding
from harness.seeds import seed_of_run
from harness.servers.subscribed_shard import STREAM, Reader, SubscribedShard, path
from integration.views.test_apiexport import ENTER, RBAC, give

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long]
STEPS = 200
PATIENCE_S = 60.0
CIRCLES = schema("circles", "events.example.com")
CONTENT = {"apiGroups": ["apis.kcp.io"], "resources": ["apiexports/content"], "verbs": ["watch"]}
FIRST, LAST = "first", "last"


def watched(resource: str, group: str = "") -> Object:
    return {"apiGroups": [group], "resources": [resource], "verbs": ["watch"]}


class Objects:
    """The objects of one kind in the workspace, which the administrator changes."""

    def __init__(self, api: Api, url: str, body: Object) -> None:
        self.api, self.url, self._body = api, url, body
        self.names: set[str] = set()

    def create(self, name: str) -> int:
        body = {**self._body, "metadata": {"name": name}}
        self.names.add(name)
        return int(self.api.post(self.url, body).json["metadata"]["resourceVersion"])

    def change(self, dice: random.Random) -> int:
        """Create, change or delete one; the revision of what is left, 0 for nothing."""
        name = f"object-{dice.randrange(5)}"
        if name not in self.names:
            return self.create(name)
        if dice.random() < 0.4:
            self.names.discard(name)
            self.api.delete(f"{self.url}/{name}")
            return 0
        change = {"metadata": {"labels": {"of": f"l{dice.randrange(1 << 30)}"}}}
        return int(self.api.patch(f"{self.url}/{name}", change).json["metadata"]["resourceVersion"])


class Subscribed:
    """A user's subscription to one kind, the rights that it rests on, and the revisions that were delivered."""

    def __init__(self, user: str, where: Api, objects: Objects, watch: str, *rules: Object) -> None:
        self.user, self.where, self.objects, self.watch, self.rules = user, where, objects, watch, rules
        #: The binding that gives each right, "" while it is not held.
        self.rights = [""] * len(rules)
        self.seen: list[int] = []
        #: Revisions that must not be delivered now, and those that were all the same.
        self.forbidden: set[int] = set()
        self.broken: list[int] = []
        #: Whether its consumer was seen to be gone since a right was taken.
        self.silent = False
        self.made: Object = {}
        self.closed = False

    @property
    def held(self) -> bool:
        return all(self.rights)

    def turn(self, which: int) -> None:
        """Give a right, or take it."""
        if self.rights[which]:
            name, self.rights[which] = self.rights[which], ""
            self.where.delete(f"{RBAC}/clusterrolebindings/{name}")
            return
        if self.rights.count("") == 1:
            self.silent = False
            self.forbidden.clear()
        self.rights[which] = give(self.where, self.user, self.rules[which])

    async def read(self, reader: Reader) -> None:
        """Read what comes, whatever becomes of the consumer, until closed."""
        context = reader.client.jetstream(prefix=self.made["apiPrefix"])
        pull = await context.pull_subscribe_bind(self.made["consumer"], stream=STREAM)
        answered = asyncio.Event()
        while not self.closed:
            try:
                for message in await pull.fetch(50, timeout=1):
                    headers = message.headers or {}
                    if "ce-subject" in headers:
                        self.took(int(headers["Atoll-Revision"]))
                    await message.ack()
            except (Error, TimeoutError):
                with suppress(TimeoutError):
                    # Without a consumer every answer is an error at once.
                    await asyncio.wait_for(answered.wait(), 0.2)
        await reader.close()

    def took(self, revision: int) -> None:
        self.seen.append(revision)
        if revision in self.forbidden:
            self.broken.append(revision)

    def expected(self, shard: SubscribedShard, begin: int, last: int) -> list[int]:
        """What a watch of the user gives after a revision and up to another."""
        api, found = shard.user(self.user), [begin]
        with api.watch(f"{self.watch}?watch=1&resourceVersion={begin}") as events:
            while found[-1] != last:
                found.append(events.next().revision)
        api.close()
        return found


class Scene:
    """A workspace that binds an API of a provider, and a subscription of each sort."""

    def __init__(self, shard: SubscribedShard) -> None:
        self.shard = shard
        self.provider, self.here = (shard.admin.at(workspace_under(shard.admin, type_="universal")) for _ in range(2))
        make_export(self.provider, "shapes", CIRCLES)
        self.bound = False
        self.turn_binding()
        here, cluster = self.here, f"/clusters/{self.here.cluster}"
        maps = Objects(here, "/api/v1/namespaces/default/configmaps", configmap("x"))
        secrets = Objects(here, "/api/v1/namespaces/default/secrets", {"stringData": {"a": "b"}})
        self.circles = Objects(here, objects_path(CIRCLES), an_object(CIRCLES, "x"))
        view = f"/services/apiexport/{cluster_of(self.provider)}/shapes/clusters/*"
        own = watched("circles", "events.example.com")
        self.all = [
            Subscribed("alice", here, maps, cluster + maps.url, ENTER, watched("configmaps")),
            Subscribed("bob", here, secrets, cluster + secrets.url, ENTER, watched("secrets")),
            Subscribed("carol", here, self.circles, cluster + self.circles.url, ENTER, own),
            Subscribed(
                "alice", self.provider, self.circles, view + objects_path(CIRCLES, namespace=""), ENTER, CONTENT
            ),
        ]

    def turn_binding(self) -> None:
        """Bind the API, or end that, which deletes its objects and takes the right of who is subscribed in here."""
        if self.bound:
            take_binding(self.here, "shapes")
            self.circles.names.clear()
        else:
            bind(self.here, self.provider.cluster, "shapes")
        self.bound = not self.bound

    def subscribe(self, each: Subscribed) -> None:
        for which in range(len(each.rules)):
            each.turn(which)
        resource = "circles.events.example.com" if each.objects is self.circles else each.objects.url.rpartition("/")[2]
        wanted: dict[str, Any] = {"name": "set", "resources": [resource], "full": each.user == "carol"}
        if each.where is self.provider:
            wanted["identity"] = identity_of(self.provider, "shapes")
        user = self.shard.user(each.user)
        each.made = dict(user.send("POST", path(cluster_of(each.where)), wanted, expect=201).json)

    async def until_silent(self, each: Subscribed) -> None:
        """Return when the server has no consumer of a subscription whose right was taken."""
        await self.shard.until_absent(each.made["consumer"])
        each.silent = True

    async def step(self, dice: random.Random) -> None:
        each, kind = dice.choice(self.all), dice.random()
        if kind < 0.04:
            await asyncio.to_thread(self.turn_binding)
        elif kind < 0.35:
            await asyncio.to_thread(each.turn, dice.randrange(len(each.rules)))
            for _ in range(dice.randrange(3)):
                await self.change(each, dice)
            if not each.held:
                await self.until_silent(each)
        else:
            await self.change(each, dice)

    async def change(self, each: Subscribed, dice: random.Random) -> None:
        if each.objects is self.circles and not self.bound:
            return
        revision = await asyncio.to_thread(each.objects.change, dice)
        # What was written before the consumer was gone may be on its way.
        for other in self.all:
            if other.objects is each.objects and not other.held and other.silent:
                other.forbidden.add(revision)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shard(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SubscribedShard]:
    async with SubscribedShard(tmp_path_factory.mktemp("set")) as shard:
        yield shard


async def test_what_nats_delivers_over_random_changes_is_what_an_authorized_watch_gives(shard: SubscribedShard) -> None:
    dice = random.Random(seed_of_run(1))
    scene = await asyncio.to_thread(Scene, shard)
    for each in scene.all:
        await asyncio.to_thread(scene.subscribe, each)
    readers = [asyncio.create_task(each.read(await shard.reader(each.made, f":{each.user}"))) for each in scene.all]
    begins = {id(each.objects): await asyncio.to_thread(each.objects.create, FIRST) for each in scene.all[:3]}
    for _ in range(STEPS):
        await scene.step(dice)
    if not scene.bound:
        await asyncio.to_thread(scene.turn_binding)
    for each in scene.all:
        for which in range(len(each.rules)):
            if not each.rights[which]:
                await asyncio.to_thread(each.turn, which)
    lasts = {id(each.objects): await asyncio.to_thread(each.objects.create, LAST) for each in scene.all[:3]}
    for each in scene.all:
        begin, last = begins[id(each.objects)], lasts[id(each.objects)]
        await asyncio.to_thread(eventually, lambda: last in each.seen, "the last one came", PATIENCE_S)  # noqa: B023
        expected = await asyncio.to_thread(each.expected, shard, begin, last)
        # At least once: what was not acknowledged when its consumer was deleted comes again.
        once = list(dict.fromkeys(each.seen))
        assert once[once.index(begin) : once.index(last) + 1] == expected, each.user
        assert each.broken == []
        each.closed = True
    await asyncio.gather(*readers)
    assert sum(len(each.seen) for each in scene.all) > STEPS // 2
