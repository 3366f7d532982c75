"""A syncer that is killed between any two requests leaves edge and mailbox as the model says, and repeats no write."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from atoll.machinery.client.client import JSON, Client
from atoll.machinery.client.kubeconfig import Target
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import NotFound
from atoll.machinery.wire.client import ClientResponse
from atoll.syncer.kinds import Kinds
from atoll.syncer.syncer import Options, Syncer
from harness.clients.api import crd
from harness.seeds import seed_of_run
from harness.servers.in_process.mailbox_view import MailboxView
from harness.servers.in_process.syncer import TIMING, is_idle, syncing
from harness.waits import until

GROUP = "faults.example.com"
BOATS = Resource(GROUP, "v1", "boats")
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
NAMES = [f"m{number}" for number in range(6)]


class Doom:
    """Ends a syncer at one of its requests: before it is sent, or after it was answered and before anybody knows."""

    def __init__(self, chance: random.Random) -> None:
        self.left, self.is_late = chance.randint(1, 40), chance.random() < 0.5
        self.struck = asyncio.Event()


class Mortal(Client):
    """A client whose requests may be the last ones."""

    def __init__(self, target: Target, cluster: str, doom: Doom) -> None:
        super().__init__(target, cluster, retries=0)
        self.doom = doom

    async def exchange(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        content_type: str = JSON,
    ) -> ClientResponse:
        doom = self.doom
        doom.left -= 1
        if doom.left == 0 and doom.is_late:
            await super().exchange(method, path, query, body, content_type)
        if doom.left <= 0:
            doom.struck.set()
            await asyncio.Event().wait()
        return await super().exchange(method, path, query, body, content_type)


class World:
    """A mailbox and an edge cluster under random changes, and what both should be in the end."""

    def __init__(self, chance: random.Random, view: MailboxView, edge: Client) -> None:
        self.chance, self.view, self.edge = chance, view, edge
        self.namespace = f"f{chance.randrange(10**9)}"
        self.wanted: dict[str, int] = {}

    async def change(self) -> None:
        """Do a few changes on both sides."""
        for _ in range(self.chance.randint(1, 8)):
            name, number = self.chance.choice(NAMES), self.chance.randint(1, 9)
            step = self.chance.choice(("place", "place", "withdraw", "report", "edit", "delete"))
            if step == "place":
                self.view.place(self._boat(name, number), resource="boats")
                self.wanted[name] = number
            elif step == "withdraw" and self.wanted.pop(name, None) is not None:
                self.view.withdraw(self.ref(name))
            elif step in ("report", "edit", "delete"):
                await self._touch(step, name, number)

    async def _touch(self, step: str, name: str, number: int) -> None:
        try:
            if step == "report":
                status = {"status": {"replicas": number}}
                await self.edge.patch(BOATS, name, status, self.namespace, "status")
            elif step == "edit":
                await self.edge.patch(BOATS, name, {"spec": {"replicas": number}}, self.namespace)
            else:
                await self.edge.delete(BOATS, name, self.namespace)
        except NotFound:
            return

    def ref(self, name: str) -> ObjectRef:
        return ObjectRef(GROUP, "boats", self.namespace, name)

    def _boat(self, name: str, number: int) -> Object:
        metadata = {"name": name, "namespace": self.namespace}
        return {"apiVersion": f"{GROUP}/v1", "kind": "Boat", "metadata": metadata, "spec": {"replicas": number}}

    async def live(self) -> dict[str, Object]:
        """The objects at the edge."""
        found = (await self.edge.list(BOATS, self.namespace))["items"]
        return {each["metadata"]["name"]: each for each in found}

    async def is_right(self) -> bool:
        """Whether both sides are as the model says."""
        live = await self.live()
        if {name: each["spec"]["replicas"] for name, each in live.items()} != self.wanted:
            return False
        return all(self.view.status(self.ref(name)) == (each.get("status") or {}) for name, each in live.items())


async def survive(seed: int, cluster: tuple[Target, str], state: Path) -> None:
    """Let a syncer be killed a few times in a changing world; check what is left in the end."""
    chance = random.Random(seed)
    async with MailboxView.serving() as view, Client(*cluster) as edge:
        world, uid = World(chance, view, edge), f"uid-{seed}"
        for _ in range(chance.randint(1, 4)):
            await world.change()
            await live_and_die(Doom(chance), cluster, view, uid, state if chance.random() < 0.8 else None)
        for is_last in (False, True):
            async with syncing(cluster, view.target, Options(uid, 500.0, 500, None, TIMING, TIMING)) as syncer:
                await until(world.is_right, f"both sides are right (seed {seed})")
                await until(is_idle(syncer, view), "everything was looked at")
                if is_last:
                    assert syncer.downsync is not None and syncer.returns is not None
                    assert (syncer.downsync.applies, syncer.downsync.deletions, syncer.returns.writes) == (0, 0, 0)


async def live_and_die(
    doom: Doom, cluster: tuple[Target, str], view: MailboxView, uid: str, state: Path | None
) -> None:
    """Run a syncer until it is struck, or has nothing left to do."""
    options = Options(uid, 500.0, 500, state, TIMING, TIMING)
    async with Mortal(view.target, "", doom) as center, Mortal(*cluster, doom) as client:
        syncer = Syncer(center, client, options)
        task, struck = asyncio.create_task(syncer.run()), asyncio.create_task(doom.struck.wait())
        idle = asyncio.create_task(until(is_idle(syncer, view), "it is done or dead", 60.0))
        await asyncio.wait((struck, idle, task), return_when=asyncio.FIRST_COMPLETED)
        for each in (task, struck, idle):
            each.cancel()
        await asyncio.gather(task, struck, idle, return_exceptions=True)


@pytest.fixture
async def boats(cluster: tuple[Target, str]) -> None:
    """The kind is served at the edge, by somebody else's definition."""
    async with Client(*cluster) as edge:
        await edge.apply(CRDS, crd("boats", GROUP), manager="somebody")
        kinds = Kinds(edge)

        async def served() -> bool:
            return await kinds.find(GROUP, "boats", "v1") is not None

        await until(served, "the kind is served")


@pytest.mark.long
@pytest.mark.usefixtures("boats")
async def test_a_syncer_that_is_killed_at_any_request_leaves_both_sides_right(
    cluster: tuple[Target, str], tmp_path: Path
) -> None:
    for trial in range(3):
        await survive(seed_of_run(trial), cluster, tmp_path / f"state-{trial}")


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(0, 200, 20))
@pytest.mark.usefixtures("boats")
async def test_two_hundred_killed_syncers_leave_both_sides_right(
    cluster: tuple[Target, str], tmp_path: Path, first: int
) -> None:
    for trial in range(first, first + 20):
        await survive(seed_of_run(trial), cluster, tmp_path / f"state-{trial}")
