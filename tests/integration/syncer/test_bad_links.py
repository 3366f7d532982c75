"""Whatever a link does, the edge ends as its mailbox says, and what is not the syncer's stays."""

from __future__ import annotations

import json
import random
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import pytest

from atoll.machinery.client.client import JSON, WATCH_IDLE_S, Client
from atoll.machinery.client.kubeconfig import Target
from atoll.machinery.client.lease import Timing
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.names import SYNCED_BY, ObjectRef
from atoll.machinery.meta.objects import Object
from atoll.machinery.wire.client import ClientResponse
from atoll.syncer.kinds import Kinds
from atoll.syncer.syncer import Options, Syncer
from harness.clients.api import configmap, crd
from harness.seeds import seed_of_run
from harness.servers.bad_line import Shape
from harness.servers.in_process.mailbox_view import MailboxView
from harness.servers.in_process.syncer import is_idle, syncing
from harness.servers.tcp_relay import DOWN, UP, TcpRelay
from harness.waits import until

GROUP = "bad-links.example.com"
BOATS = Resource(GROUP, "v1", "boats")
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
PLACED, FOREIGN = [f"b{number}" for number in range(24)], [f"f{number}" for number in range(6)]
ADOPTED = "was-there"
#: How long a syncer waits for a center that is silent, and one behind a line that carries something.
PATIENCE_S, LONG_PATIENCE_S = 2.0, 30.0
WAIT_S = 240.0
#: Leases that outlive a slow answer.
TIMING = Timing(90.0, 1.0)


class Link(NamedTuple):
    """What is done to a link, and whether that is noticed. `changes` are several where none comes through."""

    shape: Shape | None = None
    breaks: Callable[[TcpRelay], None] = lambda relay: None
    is_lost: bool = False
    changes: int = 1
    #: The center forgets meanwhile what it said, as after hours.
    forgets: bool = False


LINKS = {
    "cut": Link(breaks=TcpRelay.cut, is_lost=True, changes=5),
    "cut for hours": Link(breaks=TcpRelay.cut, is_lost=True, changes=5, forgets=True),
    "half-open": Link(breaks=TcpRelay.swallow, is_lost=True, changes=5),
    "half-open for hours": Link(breaks=TcpRelay.swallow, is_lost=True, changes=5, forgets=True),
    "one way, down": Link(breaks=lambda relay: relay.swallow(UP)),
    "one way, up": Link(breaks=lambda relay: relay.swallow(DOWN), is_lost=True),
    "half of all lost": Link(Shape(loss=0.5)),
    "two seconds long": Link(Shape(delay_s=2.0)),
    "64 kbit/s": Link(Shape(bytes_s=8000.0)),
}


class History(MailboxView):
    """A mailbox that remembers each status that was written."""

    def __init__(self) -> None:
        super().__init__()
        self.statuses: defaultdict[str, list[int]] = defaultdict(list)

    def put(self, ref: ObjectRef, obj: Object) -> Object:
        before = self.objects.get(ref, {}).get("status")
        if obj.get("status") not in (None, before) and ref.resource == BOATS.plural:
            self.statuses[ref.name].append(obj["status"]["replicas"])
        return super().put(ref, obj)


class Writes:
    """What a syncer wrote to the edge: by name, the replicas of each apply, None for a deletion."""

    def __init__(self) -> None:
        self.of: defaultdict[str, list[int | None]] = defaultdict(list)

    def client(self, *cluster: Any) -> Client:
        return _Recorded(self, *cluster)


class _Recorded(Client):
    def __init__(self, writes: Writes, target: Target, cluster: str) -> None:
        super().__init__(target, cluster)
        self._writes = writes

    async def exchange(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        content_type: str = JSON,
    ) -> ClientResponse:
        if method != "GET" and f"/{BOATS.plural}/" in path:
            spec = json.loads(body).get("spec") or {}
            self._writes.of[path.rpartition("/")[2]].append(spec.get("replicas"))
        return await super().exchange(method, path, query, body, content_type)


class World:
    """Boats of one trial on both sides, and what both should be in the end."""

    def __init__(self, chance: random.Random, view: History, edge: Client) -> None:
        self.chance, self.view, self.edge = chance, view, edge
        self.namespace, self.wanted = f"n{uuid.uuid4().hex[:8]}", dict.fromkeys(PLACED, 1)
        self.foreign: dict[str, str] = {}

    def ref(self, name: str) -> ObjectRef:
        return ObjectRef(GROUP, BOATS.plural, self.namespace, name)

    def boat(self, name: str, replicas: int, **labels: str) -> Object:
        metadata = {"name": name, "namespace": self.namespace, "labels": labels}
        return {"apiVersion": f"{GROUP}/v1", "kind": "Boat", "metadata": metadata, "spec": {"replicas": replicas}}

    async def begin(self) -> None:
        """Make what is not the syncer's, and place the rest."""
        await self.edge.create(Resource("", "v1", "namespaces", False), {"metadata": {"name": self.namespace}})
        for number, name in enumerate([*FOREIGN, ADOPTED]):
            labels = {SYNCED_BY: "another"} if number % 2 else {}
            made = await self.edge.create(BOATS, self.boat(name, 9, **labels))
            self.foreign[name] = made["metadata"]["uid"]
        self.view.place(*[self.boat(name, 1) for name in (*PLACED, ADOPTED)], resource=BOATS.plural)

    async def change(self, changes: int) -> None:
        """Do something to each object, in any order."""
        steps = [self._replace, self._withdraw, self._report, self._edit, self._delete]
        todo = [(name, step) for name, step in zip(PLACED, steps * len(PLACED), strict=False)]
        self.chance.shuffle(todo)
        for number, (name, step) in enumerate(todo):
            await step(name, changes)
            if number < len(FOREIGN):
                self._place(f"new{number}", changes)
        self.view.withdraw(self.ref(ADOPTED))

    def _place(self, name: str, changes: int) -> None:
        for _ in range(changes):
            self.wanted[name] = self.wanted.get(name, 0) + self.chance.randint(1, 3)
            self.view.place(self.boat(name, self.wanted[name]), resource=BOATS.plural)

    async def _replace(self, name: str, changes: int) -> None:
        self._place(name, changes)

    async def _withdraw(self, name: str, changes: int) -> None:
        del self.wanted[name]
        self.view.withdraw(self.ref(name))

    async def _report(self, name: str, changes: int) -> None:
        for number in range(changes):
            status = {"status": {"replicas": number + self.chance.randint(1, 3) * 10}}
            status["status"]["replicas"] += number * 100
            await self.edge.patch(BOATS, name, status, self.namespace, "status")

    async def _edit(self, name: str, changes: int) -> None:
        await self.edge.patch(BOATS, name, {"spec": {"replicas": 77}}, self.namespace)

    async def _delete(self, name: str, changes: int) -> None:
        await self.edge.delete(BOATS, name, self.namespace)

    async def live(self) -> dict[str, Object]:
        found = (await self.edge.list(BOATS, self.namespace))["items"]
        return {each["metadata"]["name"]: each for each in found}

    async def is_right(self) -> bool:
        """Whether the edge is what the mailbox wants of it, and the mailbox has its statuses."""
        live = await self.live()
        found = {name: each["spec"]["replicas"] for name, each in live.items() if name not in self.foreign}
        statuses = {name: self.view.status(self.ref(name)) for name in self.wanted}
        return found == self.wanted and all(live[name].get("status", {}) == each for name, each in statuses.items())

    async def check_foreign(self) -> None:
        """Nothing that was there before is gone or replaced."""
        live = await self.live()
        assert {name: live[name]["metadata"]["uid"] for name in self.foreign if name in live} == self.foreign


def _lost(syncer: Syncer) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return bool(syncer.mailbox.failure)

    return look


@pytest.fixture
async def boats(edge: Client) -> None:
    """The kind is served at the edge, by somebody else's definition."""
    await edge.apply(CRDS, crd("boats", GROUP), manager="somebody")
    kinds = Kinds(edge)

    async def served() -> bool:
        return await kinds.find(GROUP, "boats", "v1") is not None

    await until(served, "the kind is served")


async def survive(seed: int, link: Link, cluster: tuple[Target, str], edge: Client) -> None:
    """Change everything behind a bad link; check both sides, and what was written, once it is all over."""
    async with History.serving() as view:
        assert isinstance(view, History)
        world, writes = World(random.Random(seed), view, edge), Writes()
        shape = link.shape and link.shape._replace(seed=seed)
        with TcpRelay(view.port, shape) as relay:
            await world.begin()
            options = Options(f"uid-{seed}-{world.namespace}", 500.0, 500, None, TIMING, TIMING)
            patience_s = PATIENCE_S if link.is_lost else LONG_PATIENCE_S if shape else WATCH_IDLE_S
            center = Target("127.0.0.1", relay.port, "", None)
            async with syncing(cluster, center, options, patience_s, writes.client) as syncer:
                await until(is_idle(syncer, view), "all is there", WAIT_S)
                writes.of.clear()
                view.statuses.clear()
                link.breaks(relay)
                await world.change(link.changes)
                if link.is_lost:
                    await until(_lost(syncer), "the link is noticed to be bad", WAIT_S)
                if link.forgets:
                    view.expire()
                if link.shape is None:
                    # What was deaf stays so.
                    relay.cut()
                    relay.join()
                await until(world.is_right, f"both sides are right (seed {seed})", WAIT_S)
                await until(is_idle(syncer, view), "everything was looked at", WAIT_S)
                await world.check_foreign()
        check_histories(writes, view)


def check_histories(writes: Writes, view: History) -> None:
    """At most two writes an object either way, and never back to what was before."""
    assert max(map(len, writes.of.values())) <= 2, dict(writes.of)
    assert max(map(len, view.statuses.values()), default=0) <= 2, dict(view.statuses)
    for found in view.statuses.values():
        assert found == sorted(found), dict(view.statuses)
    for applied in writes.of.values():
        numbers = [each for each in applied if each is not None]
        assert numbers == sorted(numbers), dict(writes.of)
    assert not any(name in FOREIGN for name in writes.of)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", LINKS)
@pytest.mark.usefixtures("boats")
async def test_behind_a_bad_link_both_sides_end_as_they_should_with_two_writes_an_object(
    kind: str, cluster: tuple[Target, str], edge: Client
) -> None:
    link = LINKS[kind]
    for trial in range(1 if link.shape else 3):
        await survive(seed_of_run(trial), link, cluster, edge)


@pytest.mark.long
async def test_a_list_is_read_over_a_slow_line_however_long_each_of_its_pages_takes(
    view: MailboxView, cluster: tuple[Target, str], edge: Client
) -> None:
    name = f"s{uuid.uuid4().hex[:8]}"
    view.place(*[configmap(f"c{number}", {"x": "y" * 10_000}, namespace=name) for number in range(8)])
    with TcpRelay(view.port, Shape(bytes_s=8000.0)) as relay:
        center = Target("127.0.0.1", relay.port, "", None)
        options = Options(name, 500.0, 500, None, TIMING, TIMING)
        # A page takes ten seconds, and a request may take four.
        async with syncing(cluster, center, options, 4.0) as syncer:
            await until(is_idle(syncer, view), "all is there", WAIT_S)
        assert view.lists == 1
    found = (await edge.list(Resource("", "v1", "configmaps"), name, labelSelector=f"{SYNCED_BY}={name}"))["items"]
    assert len(found) == 8
