"""Two workspaces on two shards give one object. When the shard of one is restored, the last change counts as before.

What a restore puts back has the revision of its day, so it is no change of now; an edit after it is one.
"""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

import pytest

from fault.site.edge_world import HOME, LONG_S, PLACES, World, running
from harness.clients.api import configmap, eventually
from harness.clients.site_operations import MAPS
from harness.clients.site_workspaces import WORKSPACES, shard_of
from harness.seeds import seed_of_run
from harness.servers.processes import atoll

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

SHARED = "shared"


class Pair:
    """The workspace that is restored, on a shard without the mailbox, and the other one."""

    def __init__(self, world: World, backup: Path) -> None:
        self._world, self._backup = world, backup
        with closing(world.site.proxy.api(HOME)) as home:
            mailbox = shard_of(home.get(f"{WORKSPACES}/{world.mailbox}").json)
        self.restored, self.other = sorted(PLACES, key=lambda place: PLACES[place] == mailbox)
        self._shard = PLACES[self.restored]

    def write(self, place: str, name: str, value: str) -> None:
        """Give an object a value in one of the workspaces."""
        with closing(self._world.site.shards[PLACES[place]].api(self._world.clusters[place])) as api:
            body = configmap(name, {"n": value})
            if api.send("PUT", f"{MAPS}/{name}", body).code == 404:
                api.post(MAPS, body)

    def at_edge(self, name: str = SHARED) -> str:
        """The value that the edge has, empty if it has none."""
        found = self._world.edge.send("GET", f"{MAPS}/{name}")
        return str(found.json["data"]["n"]) if found.code == 200 else ""

    def give(self, place: str, value: str) -> None:
        """Give the shared object a value, which counts then."""
        self.write(place, SHARED, value)
        eventually(lambda: self.at_edge() == value, f"{value} counts", LONG_S)

    def back_up(self) -> None:
        self._store("backup", "--to", str(self._backup))

    def restore(self, mark: str) -> None:
        """Restore the shard, and wait until what is written in the workspace after it is at the edge."""
        shard = self._world.site.shards[self._shard]
        shard.stop()
        self._store("restore", "--from", str(self._backup), "--in-place")
        shard.start()
        self.write(self.restored, mark, "1")
        eventually(lambda: self.at_edge(mark) == "1", f"{mark} is at the edge", LONG_S)

    def _store(self, command: str, *flags: str) -> None:
        root = str(self._world.site.layout.shard(self._shard))
        done = atoll(command, "--root-directory", root, "--shard-name", self._shard, *flags)
        assert done.code == 0, done.stderr

    def story(self) -> None:
        """Edit and restore in turn; who changed last among what there is counts at each moment."""
        self.give(self.restored, "restored-1")
        self.give(self.other, "other-1")
        self.back_up()
        self.restore("after-nothing")
        assert self.at_edge() == "other-1", "what a restore leaves as it is is no change"
        self.give(self.restored, "restored-2")
        self.give(self.other, "other-2")
        with self._world.edge.watch(f"{MAPS}?watch=1&fieldSelector=metadata.name={SHARED}") as events:
            self.restore("after-edits")
            assert self.at_edge() == "other-2", "what a restore puts back is no change"
            self.give(self.restored, "restored-3")
            seen = [events.next().object["data"]["n"]]
            while seen[-1] != "restored-3":
                seen.append(events.next().object["data"]["n"])
        assert set(seen) == {"other-2", "restored-3"}, "nothing else counted in between"
        self.restore("after-an-edit-that-is-lost")
        eventually(lambda: self.at_edge() == "other-2", "the last change that is left counts", LONG_S)


async def test_what_a_restore_puts_back_does_not_count_as_changed_and_an_edit_after_it_does(tmp_path: Path) -> None:
    async with running(tmp_path, seed_of_run(24)) as world:
        pair = await asyncio.to_thread(Pair, world, tmp_path / "backup")
        await asyncio.to_thread(pair.story)
