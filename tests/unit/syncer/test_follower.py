"""A list that takes longer than its server keeps revisions, or is cut, goes on; nothing is missed or goes back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Set
from contextlib import asynccontextmanager
from typing import Any

import pytest

from atoll.machinery.client.resource import Resource, WatchEvent
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import Expired
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.wire.pending_response import ConnectionLost
from atoll.syncer import follower
from atoll.syncer.follower import Follower, Key
from harness.clients.api import configmap
from harness.seeds import seed_of_run

CONFIGMAPS = Resource("", "v1", "configmaps")
NAMES = [f"c{number}" for number in range(12)]
State = dict[str, int]


class World:
    """A server with pages of two objects, where others write all the time while `unrest` lasts."""

    def __init__(self, chance: random.Random, unrest: int) -> None:
        self.chance, self.unrest = chance, unrest
        self.states: list[State] = [{}]
        self.log = list[WatchEvent]()
        for name in NAMES:
            self.write(name)
        #: How probable it is that a connection breaks, that a list may go on, and that a watch is too old.
        self.cuts, self.window, self.forgets = 0.0, 0.0, 0.0
        #: Below this revision no list goes on.
        self._listable = 0
        self.lists = self.answered_410 = self.forgotten = 0
        self.is_finished = asyncio.Event()

    def write(self, name: str, operation: str = "MODIFIED") -> None:
        revision, state = len(self.states), dict(self.states[-1])
        if operation == "DELETED":
            del state[name]
        else:
            state[name] = revision
        self.states.append(state)
        # As of an item that a SyncerConfig hides, a deletion has the revision before its own.
        shown = revision - (operation == "DELETED")
        self.log.append(WatchEvent(operation, configmap(name, namespace="n", resourceVersion=str(shown))))

    def live(self) -> bool:
        """Let others write, and a connection break."""
        if not self.unrest:
            return True
        self.unrest -= 1
        for name in self.chance.sample(NAMES, 3):
            is_deleted = name in self.states[-1] and self.chance.random() < 0.5
            self.write(name, "DELETED" if is_deleted else "MODIFIED")
        return self.chance.random() >= self.cuts

    async def page(self, path: str, options: Mapping[str, str]) -> Object:
        if not self.live():
            raise ConnectionLost("cut", begun=True)
        revision, _, after = options.get("continue", "0:").partition(":")
        at = int(revision)
        if at and at < self._listable:
            self.answered_410 += 1
            error = Expired("too old")
            error.continue_token = f"0:{after}"
            raise error
        self.lists += not after
        at = at or len(self.states) - 1
        left = [name for name in sorted(self.states[at]) if name > after]
        metadata = {"resourceVersion": str(at)} | ({"continue": f"{at}:{left[1]}"} if left[2:] else {})
        items = [configmap(name, namespace="n", resourceVersion=str(self.states[at][name])) for name in left[:2]]
        if self.unrest and self.chance.random() >= self.window:
            self._listable = len(self.states)
        return {"apiVersion": "v1", "kind": "ConfigMapList", "metadata": metadata, "items": items}

    @asynccontextmanager
    async def watch(self, resource: Resource, **options: str) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        yield self._events(int(options["resourceVersion"]))

    async def _events(self, position: int) -> AsyncGenerator[WatchEvent, None]:
        if self.unrest and self.chance.random() < self.forgets:
            self.forgotten += 1
            raise Expired("too old")
        while self.live():
            for event in self.log[position:]:
                yield event
                if self.unrest and self.chance.random() < self.cuts:
                    raise ConnectionLost("cut", begun=True)
            position = len(self.log)
            yield WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": str(position)}})
            if not self.unrest:
                self.is_finished.set()
                await asyncio.Event().wait()


class Recorder:
    """What a follower told, held to the server's state at the revision where a list is whole."""

    def __init__(self, world: World) -> None:
        self.world, self.state, self.last = world, State(), State()
        self.revision = self.lists = 0
        self.follower: Follower | None = None
        #: Why the state was not current, at each object.
        self.failures: list[str] = []

    def changed(self, obj: Object) -> None:
        assert self.follower is not None
        self.failures.append(self.follower.failure)
        self.state[self._name(obj)] = int(obj["metadata"]["resourceVersion"])

    def gone(self, obj: Object) -> None:
        self.state.pop(self._name(obj), None)

    def _name(self, obj: Object) -> str:
        name, revision = str(obj["metadata"]["name"]), int(obj["metadata"]["resourceVersion"])
        assert revision >= self.last.get(name, 0), f"{name} goes back"
        self.last[name] = revision
        return name

    def complete(self, keys: Set[Key]) -> None:
        self.state = {name: revision for name, revision in self.state.items() if ("n", name) in keys}
        assert self.state in self.world.states[self.revision : self.revision + 2]
        self.lists += 1

    def reached(self, revision: str) -> None:
        self.revision = int(revision)


async def follow(world: World, recorder: Recorder) -> None:
    """Follow until all was told, and nobody writes any more."""
    client: Any = world
    followed = recorder.follower = Follower(client, CONFIGMAPS, recorder)
    task = asyncio.create_task(followed.run())
    waiting = asyncio.create_task(world.is_finished.wait())
    try:
        async with asyncio.timeout(60):
            await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
        assert world.is_finished.is_set() or task.result() is None
        assert followed.failure == ""
    finally:
        for each in (task, waiting):
            each.cancel()
        await asyncio.gather(task, waiting, return_exceptions=True)
    assert recorder.state == world.states[-1]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "BACKOFF", Backoff(0.0, 0.0))


async def test_a_list_of_which_each_page_takes_longer_than_the_list_window_ends() -> None:
    world = World(random.Random(1), unrest=40)
    recorder = Recorder(world)
    await follow(world, recorder)
    assert world.answered_410 >= 2
    assert (world.lists, recorder.lists) == (1, 1)


async def test_a_list_that_is_cut_and_too_old_again_and_again_misses_nothing_and_forgets_nothing_that_stays() -> None:
    answered_410 = 0
    for trial in range(15):
        chance = random.Random(seed_of_run(trial))
        world = World(chance, unrest=chance.randrange(80))
        world.cuts, world.window = chance.random() * 0.6, chance.random()
        recorder = Recorder(world)
        await follow(world, recorder)
        answered_410 += world.answered_410
        assert world.lists == 1, "a list begins anew"
        # Another list, over what is known.
        world.unrest, world.forgets = chance.randrange(80), 0.2
        world.is_finished.clear()
        await follow(world, recorder)
        assert world.lists == 2 + world.forgotten
    assert answered_410 > 5


async def test_a_list_longer_than_changes_are_kept_begins_anew_takes_nothing_away_and_counts_as_cut() -> None:
    world = World(random.Random(1), unrest=40)
    world.forgets = 1.0
    recorder = Recorder(world)
    await follow(world, recorder)
    assert world.forgotten >= 2
    assert world.lists == world.forgotten + 1
    assert recorder.lists == 1
    assert all(recorder.failures)
