"""Several processes of the edge controllers share the work, and what one of them had is taken over when it is gone."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import yaml

from harness.clients.api import MERGE, Api, configmap, eventually
from harness.servers.edge_service import GROUP, an_object
from harness.servers.shard_process import ShardProcess
from integration.edge.placed import (
    CONFIGMAPS,
    CONFIGMAPS_OF_ALL,
    TARGETS,
    WORKSPACES,
    data,
    inventory,
    is_projected,
    mailboxes,
    phase,
    place,
    workload,
)
from integration.edge_members.conftest import Member, Members, ended

__all__ = ["inventory", "mailboxes", "workload"]

pytestmark = pytest.mark.long
NAMES = [f"m{number}" for number in range(10)]
FENCE = "atoll-fencing-token"
TAKEOVER_S, PAUSE_S = 30.0, 60.0


class World:
    """Ten ConfigMaps that are placed in both mailboxes."""

    def __init__(self, workload: Api, mailboxes: dict[str, Api]) -> None:
        self.workload, self.mailboxes, self._number = workload, mailboxes, 0
        for name in NAMES:
            workload.post(CONFIGMAPS, configmap(name, {"n": "0"}))
        for name in mailboxes:
            place(workload, name, {"env": name}, CONFIGMAPS_OF_ALL)
        for name in mailboxes:
            eventually(partial(is_projected, workload, name), "it is placed")

    def edit(self) -> None:
        """Change all."""
        self._number += 1
        for name in NAMES:
            self.workload.patch(f"{CONFIGMAPS}/{name}", {"data": {"n": str(self._number)}})

    def is_carried(self) -> bool:
        wanted = {"n": str(self._number)}
        return all(data(api, f"{CONFIGMAPS}/{name}") == wanted for api in self.mailboxes.values() for name in NAMES)

    def revisions(self) -> list[str]:
        found = [api.get(f"{CONFIGMAPS}/{name}").json for api in self.mailboxes.values() for name in NAMES]
        return [each["metadata"]["resourceVersion"] for each in found]


@pytest.fixture
def world(members: Members, workload: Api, mailboxes: dict[str, Api]) -> Iterator[World]:
    eventually(members.are_back, "both work")
    yield World(workload, mailboxes)


@contextmanager
def under_load(world: World) -> Iterator[None]:
    """Edit another object of the workspace all the time."""
    ended, api = threading.Event(), world.workload.at(world.workload.cluster)
    world.workload.post(CONFIGMAPS, configmap("busy"))

    def edit() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            api.patch(f"{CONFIGMAPS}/busy", {"data": {"n": str(number)}})

    thread = threading.Thread(target=edit)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        api.close()


def taken_over(members: Members, world: World, gone: Member, disturb: Callable[[], object]) -> None:
    """Disturb the member that carries objects: the other one goes on, within the time that is allowed for it."""
    (other,) = [each for each in members.both if each is not gone]
    began_s, epoch = time.monotonic(), members.roster()["epoch"]
    disturb()
    world.edit()
    eventually(lambda: members.roster()["members"] == [other.name], "it is taken off", timeout_s=TAKEOVER_S)
    eventually(world.is_carried, "the other one carries what changed")
    print(f"carried again after {time.monotonic() - began_s:.1f} s")
    assert members.roster()["whole"] == other.name
    assert members.roster()["epoch"] != epoch


def test_what_a_killed_member_had_is_taken_over_under_load(members: Members, world: World, root: Api) -> None:
    gone, home, here = members.translator, root.at("root:espw"), root.at("root:imw1")
    with under_load(world):
        taken_over(members, world, gone, lambda: gone.process.stop(signal.SIGKILL))
    # Keys of whichever member: all mailboxes are made by the one that is left.
    made = [here.post(TARGETS, an_object("SyncTarget", f"t{number}")).json for number in range(4)]
    names = [f"{each['metadata']['annotations']['kcp.io/cluster']}-mb-{each['metadata']['uid']}" for each in made]
    eventually(lambda: {phase(home, each) for each in names} == {"Ready"}, "all are made")
    gone.revive()
    eventually(members.are_all, "it is back")
    for number in range(4):
        here.delete(f"{TARGETS}/t{number}")
    eventually(lambda: {home.send("GET", f"{WORKSPACES}/{each}").code for each in names} == {404}, "all are gone")
    home.close()
    here.close()


def test_a_member_that_was_paused_for_a_minute_writes_nothing_and_begins_anew(members: Members, world: World) -> None:
    gone = members.translator
    process = gone.process._process
    assert process is not None
    paused_s = time.monotonic()
    taken_over(members, world, gone, lambda: process.send_signal(signal.SIGSTOP))
    while time.monotonic() < paused_s + PAUSE_S:
        world.edit()
        eventually(world.is_carried, "the other one carries it, too")
    before = world.revisions()
    process.send_signal(signal.SIGCONT)
    assert ended(gone) == 1
    assert world.revisions() == before
    gone.revive()
    eventually(members.are_all, "it is back")
    assert world.revisions() == before


@pytest.mark.parametrize("link", ["nats", "api"])
def test_a_member_that_is_cut_off_leaves_its_work_to_the_other(members: Members, world: World, link: str) -> None:
    gone = members.translator
    taken_over(members, world, gone, getattr(gone, link).cut)
    getattr(gone, link).join()
    assert ended(gone) == 1
    gone.revive()
    eventually(members.are_all, "it is back")
    world.edit()
    eventually(world.is_carried, "changes are carried")


def test_what_is_sent_with_an_earlier_epoch_is_refused_by_the_shard(
    members: Members, world: World, shard: ShardProcess
) -> None:
    epoch = members.roster()["epoch"]
    assert isinstance(epoch, int)
    written = yaml.safe_load((shard.root.parent / "edge.kubeconfig").read_text())
    tokens = {user["name"]: user["user"]["token"] for user in written["users"]}
    mailbox = world.mailboxes["one"]
    translator = Api(shard, mailbox.cluster, token=tokens["placement-translator"])
    path, body = f"{CONFIGMAPS}/m0", {"metadata": {"labels": {"late": "yes"}}}

    def is_refused() -> bool:
        # The member that writes may not have read the epoch of the roster yet.
        world.edit()
        eventually(world.is_carried, "it is carried")
        refused = translator.send("PATCH", path, body, kind=MERGE, headers={FENCE: str(epoch - 1)})
        return refused.code == 412 and "newer fencing token" in refused.message

    eventually(is_refused, "a write of an earlier epoch is refused")
    assert translator.send("DELETE", path, headers={FENCE: str(epoch - 1)}).code == 412
    assert translator.send("DELETE", CONFIGMAPS, headers={FENCE: str(epoch - 1)}).code == 412
    late = translator.send("POST", CONFIGMAPS, configmap("late"), headers={FENCE: str(epoch - 1)})
    assert late.code == 412
    assert translator.send("POST", CONFIGMAPS, configmap("late"), headers={FENCE: "x"}).code == 412
    assert data(mailbox, path) is not None
    accepted = translator.send("POST", CONFIGMAPS, configmap("late"), headers={FENCE: str(epoch)})
    assert accepted.code == 201
    assert translator.send("DELETE", f"{CONFIGMAPS}/late").code == 200
    assert translator.send("GET", f"{GROUP}/syncerconfigs/the-one", headers={FENCE: "1"}).code == 200
    translator.close()
