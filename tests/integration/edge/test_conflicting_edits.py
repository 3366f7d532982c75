"""One object is edited within a second in two workspaces, in its mailbox and at the edge: the rules decide everywhere.

The model is written from the rules: of what both workspaces give the last change counts; in a mailbox what a workspace
gives is put back, and what nobody gives stays; at an edge too, unless the object is not to be overwritten.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest

from atoll.machinery.edge.names import OVERWRITE, ObjectRef
from atoll.machinery.meta.objects import annotations_of
from atoll.syncer.syncer import Syncer
from harness.clients.api import Api, configmap
from harness.seeds import seed_of_run
from harness.servers.mutant_shard import MutantShard
from harness.waits import until
from integration.edge.chain import Chain, is_quiet
from integration.edge.placed import CONFIGMAPS, CONFIGMAPS_OF_ALL, PLACEMENTS, data, new_workload, place

SHARED, PROBE = f"{CONFIGMAPS}/shared", f"{CONFIGMAPS}/probe"
PROBE_REF = ObjectRef("", "configmaps", "default", "probe")
ROUNDS, SLICES = 50, 10
#: Rounds follow each other faster than a contest of real controllers ends.
CALM_S = 0.5
#: Place -> the keys that it may edit. `first` and `second` are workspaces: `both` is given by both of them.
KEYS = {
    "first": ("both", "a"),
    "second": ("both", "b"),
    "mailbox": ("both", "a", "b", "of-mailbox"),
    "edge": ("both", "a", "b", "of-mailbox", "of-edge"),
}
#: What edits of a round come with: the rule stays, or is set to be overwritten or not, while they are made.
FLIPS = ("", "", "", "true", "false", "none")


class Model:
    """What the places should have."""

    def __init__(self) -> None:
        self.given: dict[str, dict[str, str]] = {"first": {}, "second": {}}
        self.last = "second"
        self.mailbox: dict[str, str] = {}
        self.edge: dict[str, str] = {}
        self.is_overwritten = True
        #: Whether the rule changed in this round, and the values that the edge may have had during it, by key.
        self.is_turned, self.possible = False, dict[str, set[str]]()

    def begin(self, *, is_overwritten: bool) -> None:
        """A round begins, in which the rule becomes that."""
        self.is_turned = is_overwritten != self.is_overwritten
        self.is_overwritten = is_overwritten
        self.possible = {}
        for key, value in (*self.edge.items(), *self.wanted().items()):
            self.possible.setdefault(key, set()).add(value)

    def edit(self, place: str, key: str, value: str) -> None:
        """An edit of the round."""
        self.possible.setdefault(key, set()).add(value)
        if place in self.given:
            self.given[place][key], self.last = value, place
        elif place == "mailbox":
            self.mailbox[key] = value
        else:
            self.edge[key] = value
        # The other value of the workspace that counts now comes with it.
        for each, known in self.wanted().items():
            self.possible.setdefault(each, set()).add(known)

    def wanted(self) -> dict[str, str]:
        """What the mailbox should have."""
        rest = "first" if self.last == "second" else "second"
        return {**self.mailbox, **self.given[rest], **self.given[self.last]}

    def allows(self, found: dict[str, str]) -> bool:
        """Whether the edge may have this now."""
        if self.is_overwritten:
            return found == {**self.edge, **self.wanted()}
        if not self.is_turned:
            return found == self.edge
        # The last state that was applied before the rule was known, and what was edited there since.
        return set(self.edge) <= set(found) and all(value in self.possible.get(key, ()) for key, value in found.items())


class World:
    """The four places of one object."""

    def __init__(self, seed: int, chain: Chain, workspaces: tuple[Api, Api]) -> None:
        self._chance, self.model = random.Random(seed), Model()
        self.apis = dict(zip(KEYS, (*workspaces, chain.mailbox, chain.edge), strict=True))
        self._number, self._history = 0, list[str]()

    def begin(self) -> None:
        """Make the object in both workspaces, and the probe in the first."""
        for name, key in (("first", "a"), ("second", "b")):
            content = {"both": name, key: name}
            self.apis[name].post(CONFIGMAPS, configmap("shared", content))
            for each, value in content.items():
                self.model.edit(name, each, value)
        self.apis["first"].post(CONFIGMAPS, configmap("probe", {"n": "0"}))

    def edits(self) -> None:
        """Edit the object in some places, each to a value that never was; maybe turn the rule."""
        self._history.clear()
        flip, turned_at = self._chance.choice(FLIPS), self._chance.randrange(4)
        self.model.begin(is_overwritten=flip != "false" if flip else self.model.is_overwritten)
        for number in range(self._chance.randint(2, 6)):
            where = self._chance.choice(tuple(KEYS))
            self._edit(where, flip if number == turned_at and where == "first" else "")
            flip = "" if number == turned_at and where == "first" else flip
        if flip:
            self._edit("first", flip)

    def _edit(self, place: str, flip: str) -> None:
        key = self._chance.choice(KEYS[place])
        self._number += 1
        body: dict[str, object] = {"data": {key: f"{place}-{self._number}"}}
        if flip:
            body["metadata"] = {"annotations": {OVERWRITE: None if flip == "none" else flip}}
        self.apis[place].patch(SHARED, body)
        self._history.append(f"{place}: {body}")
        self.model.edit(place, key, f"{place}-{self._number}")

    def look(self, place: str, path: str = SHARED) -> object:
        return data(self.apis[place], path)

    def history(self) -> str:
        """The history of the round, and what is where."""
        rows = [f"is overwritten: {self.model.is_overwritten}, turned: {self.model.is_turned}", *self._history]
        for where, api in self.apis.items():
            found = api.send("GET", SHARED).json
            notes = found.get("metadata", {}).get("annotations", {})
            rows.append(f"{where}: {found.get('data')}, {OVERWRITE}: {notes.get(OVERWRITE)}")
        return "\n".join(rows)

    async def rests(self, syncer: Syncer) -> None:
        """Wait until the mailbox is right and the syncer has seen all that happened on both sides."""

        async def is_merged() -> bool:
            return self.look("mailbox") == self.model.wanted()

        await until(is_merged, f"the mailbox has what the rules say: {self.model.wanted()}", 60.0)
        revision = int(self.apis["mailbox"].get(SHARED).json["metadata"]["resourceVersion"])
        mark = {"metadata": {"annotations": {"seen": str(self._number)}}}
        self.apis["edge"].patch(PROBE, mark)

        async def has_seen() -> bool:
            told = annotations_of(syncer.edge.get(PROBE_REF) or {"metadata": {}}).get("seen")
            return told == str(self._number) and syncer.mailbox.revision >= revision and is_quiet(syncer)

        await until(has_seen, "the syncer has seen it", 60.0)

        async def is_right() -> bool:
            found = self.look("edge")
            return isinstance(found, dict) and self.model.allows(found)

        await until(is_right, f"the edge has what the rules say: {self.model.wanted()}, {self.model.edge}")
        found = self.look("edge")
        assert isinstance(found, dict)
        self.model.edge = found


@pytest.fixture(scope="module")
def chain(edge: MutantShard, root: Api) -> Iterator[Chain]:
    found = Chain(edge, root, "contested")
    yield found
    found.close()


@pytest.fixture
def workspaces(root: Api) -> Iterator[tuple[Api, Api]]:
    """Two workspaces that place their ConfigMaps at the edge cluster."""
    found = new_workload(root), new_workload(root)
    for api in found:
        place(api, "p", {"env": "contested"}, CONFIGMAPS_OF_ALL)
    yield found
    for api in found:
        api.delete(CONFIGMAPS)
        api.delete(PLACEMENTS)
        api.close()


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(SLICES))
async def test_edits_of_one_object_in_four_places_end_as_the_rules_say(
    chain: Chain, workspaces: tuple[Api, Api], part: int
) -> None:
    seed = seed_of_run(part)
    world = World(seed, chain, workspaces)
    world.begin()

    async def is_placed() -> bool:
        wanted = {"n": "0"}, world.model.wanted()
        return (world.look("edge", PROBE), world.look("edge")) == wanted

    async with chain.syncing() as syncer:
        await until(is_placed, "the object is at the edge", 60.0)
        assert syncer.downsync is not None
        syncer.downsync.contests.calm_s = CALM_S
        for number in range(ROUNDS):
            # The syncer is in this event loop.
            await asyncio.to_thread(world.edits)
            try:
                await world.rests(syncer)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, round {number}: {error}\n{world.history()}") from None
        for api in workspaces:
            api.delete(SHARED)

        async def is_gone() -> bool:
            return world.look("mailbox") is None

        await until(is_gone, "without its sources it is gone", 60.0)
    chain.edge.send("DELETE", SHARED)
