"""One object is edited within a second in two workspaces, in its mailbox and at the edge: the rules decide everywhere.

It is also withdrawn by one of the workspaces, given again, and deleted by hand in the mailbox and at the edge.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest

from atoll.machinery.edge.names import OVERWRITE, ObjectRef
from atoll.machinery.meta.objects import annotations_of
from atoll.syncer.syncer import Syncer
from harness.clients.api import MERGE, Api, Object, configmap, eventually
from harness.seeds import seed_of_run
from harness.servers.mutant_shard import MutantShard
from harness.waits import until
from integration.edge.chain import Chain, is_quiet
from integration.edge.contested import KEYS, WORKSPACES, Model
from integration.edge.placed import CONFIGMAPS, CONFIGMAPS_OF_ALL, PLACEMENTS, data, new_workload, place

SHARED, PROBE = f"{CONFIGMAPS}/shared", f"{CONFIGMAPS}/probe"
PROBE_REF = ObjectRef("", "configmaps", "default", "probe")
ROUNDS, SLICES = 50, 10
#: Rounds follow each other faster than a contest of real controllers ends.
CALM_S = 0.5
#: What edits of a round come with: the rule stays, or is set to be overwritten or not, while they are made.
FLIPS = ("", "", "", "true", "false", "none")
#: One change of so many is a deletion.
DELETIONS = 8


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
        """Change the object in some places, each edit to a value that never was; maybe turn the rule."""
        self._history.clear()
        self.model.begin()
        flip, turned_at = self._chance.choice(FLIPS), self._chance.randrange(4)
        for number in range(self._chance.randint(2, 6)):
            where = self._chance.choice(tuple(KEYS))
            is_turned = bool(flip) and number == turned_at and where == "first"
            if not is_turned and self._chance.randrange(DELETIONS) == 0:
                self._delete(where)
                continue
            self._edit(where, flip if is_turned else "")
            flip = "" if is_turned else flip
        if flip:
            self._edit("first", flip)

    def _edit(self, place: str, flip: str) -> None:
        key = self._chance.choice(KEYS[place])
        self._number += 1
        value = f"{place}-{self._number}"
        notes = {OVERWRITE: None if flip == "none" else flip} if flip else {}
        if place in WORKSPACES and not self.model.given[place]:
            body = configmap("shared", {key: value}, annotations={k: v for k, v in notes.items() if v is not None})
            self.apis[place].post(CONFIGMAPS, body)
        elif not self._sent("PATCH", place, {"data": {key: value}, "metadata": {"annotations": notes}}):
            return
        self._history.append(f"{place}: {key}={value} {notes}")
        if flip:
            self.model.turn(is_overwritten=flip != "false")
        self.model.edit(place, key, value)

    def _delete(self, place: str) -> None:
        """Delete the object in a place, unless it is the only workspace that gives it."""
        others = [each for each in WORKSPACES if each != place and self.model.given[each]]
        is_given = place in WORKSPACES and bool(self.model.given[place])
        if place in WORKSPACES and not (is_given and others):
            return
        if self._sent("DELETE", place):
            self._history.append(f"{place}: deleted")
            self.model.delete(place)

    def _sent(self, verb: str, place: str, body: Object | None = None) -> bool:
        """Send a change; return whether there was an object. Mailbox and edge make it anew after a deletion."""
        code = self.apis[place].send(verb, SHARED, body, kind=MERGE if body else "").code
        assert code == 200 or (code == 404 and place not in WORKSPACES), (verb, place, code)
        return code == 200

    def look(self, place: str, path: str = SHARED) -> object:
        return data(self.apis[place], path)

    def history(self) -> str:
        """The history of the round, and what is where."""
        rows = [f"before: {vars(self.model)}", *self._history]
        for where, api in self.apis.items():
            found = api.send("GET", SHARED).json
            notes = found.get("metadata", {}).get("annotations", {})
            rows.append(f"{where}: {found.get('data')}, {OVERWRITE}: {notes.get(OVERWRITE)}")
        return "\n".join(rows)

    async def rests(self, syncer: Syncer) -> None:
        """Wait until the mailbox is right and the syncer has seen all that happened on both sides."""

        async def is_merged() -> bool:
            found = self.look("mailbox")
            return isinstance(found, dict) and self.model.merged(found)

        await until(is_merged, f"the mailbox has what the rules say: {self.model.wanted()}", 60.0)
        revision = int(self.apis["mailbox"].get(SHARED).json["metadata"]["resourceVersion"])
        mark = {"metadata": {"annotations": {"seen": str(self._number)}}}
        self.apis["edge"].patch(PROBE, mark)

        async def has_seen() -> bool:
            told = annotations_of(syncer.edge.get(PROBE_REF) or {"metadata": {}}).get("seen")
            return told == str(self._number) and syncer.mailbox.revision >= revision and is_quiet(syncer)

        await until(has_seen, "the syncer has seen it", 60.0)

        mailbox = self.look("mailbox")
        assert isinstance(mailbox, dict)

        async def is_right() -> bool:
            found = self.look("edge")
            return isinstance(found, dict) and self.model.allows(mailbox, found)

        await until(is_right, f"the edge has what the rules say: {mailbox}, {self.model.edge}")
        found = self.look("edge")
        assert isinstance(found, dict)
        self.model.rest(mailbox, found)


@pytest.fixture(scope="module")
def chain(edge: MutantShard, root: Api) -> Iterator[Chain]:
    found = Chain(edge, root, "contested")
    yield found
    found.close()


@pytest.fixture
def workspaces(root: Api, chain: Chain) -> Iterator[tuple[Api, Api]]:
    """Two workspaces that place their ConfigMaps at the edge cluster, where nothing of them is left afterwards."""
    found = new_workload(root), new_workload(root)
    for api in found:
        place(api, "p", {"env": "contested"}, CONFIGMAPS_OF_ALL)
    yield found
    for api in found:
        api.delete(CONFIGMAPS)
        api.delete(PLACEMENTS)
        api.close()
    eventually(lambda: data(chain.mailbox, SHARED) is None, "the copy is gone")
    chain.edge.send("DELETE", SHARED)


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
        world.model.rest(world.model.wanted(), world.model.wanted())
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
            api.send("DELETE", SHARED)

        async def is_gone() -> bool:
            return world.look("mailbox") is None

        await until(is_gone, "without its sources it is gone", 60.0)
