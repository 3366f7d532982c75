"""A member that does not reach one shard of several, which another member reaches, leaves what it had to that."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from harness.clients.api import Api, configmap, eventually
from harness.clients.site_workspaces import on
from harness.servers.edge_service import GROUP, an_object, edge_init, location
from harness.servers.site import ServingProcess, Site
from harness.servers.tcp_relay import TcpRelay
from integration.edge.placed import CONFIGMAPS, CONFIGMAPS_OF_ALL, WORKSPACES, data, is_projected, phase, place
from integration.edge_members.conftest import Member, Members, ended

pytestmark = pytest.mark.long

TAKEOVER_S = 30.0


class World:
    """Two members, each with a link of its own to the shard that does not have their roster, and a workspace there."""

    def __init__(self, site: Site, directory: Path) -> None:
        self._site, self._number = site, 0
        self.links: list[TcpRelay] = []
        edge_init(site, directory / "edge.kubeconfig")
        self._root, self._home = (site.proxy.api(each) for each in ("root", "root:espw"))
        self.far = self._far(str(self._root.get(f"{WORKSPACES}/espw").json["spec"]["cluster"]))
        nats = "--nats-url", site.nats.url, "--nats-credentials-file"
        flags = [(*nats, str(site.layout.credential(f"edge-{number}"))) for number in range(2)]
        first, second = (
            Member(directory / f"member-{number}", directory / "edge.kubeconfig", each)
            for number, each in enumerate(flags)
        )
        self.members = Members(self._home, (first, second))

    def _far(self, home: str) -> ServingProcess:
        """The shard on which the service's workspace is not."""
        (found,) = [each for each in self._site.shards.values() if each.api(home).send("GET", "/api").code != 200]
        return found

    def start(self) -> None:
        """Start the members, and place what is in a workspace of that shard."""
        port = urlsplit(self.far.url).port or 0
        for each in self.members.both:
            link = TcpRelay(port).__enter__()
            self.links.append(link)
            each.reach(port, link)
            each.api.__enter__()
            each.nats.__enter__()
            each.process.start()
        eventually(self.members.are_all, "both are on the roster")
        inventory = self._site.proxy.api("root:imw1")
        made = inventory.post(f"{GROUP}/synctargets", an_object("SyncTarget", "one", id="one")).json["metadata"]
        inventory.post(f"{GROUP}/locations", location("one", env="one"))
        mailbox = f"{made['annotations']['kcp.io/cluster']}-mb-{made['uid']}"
        eventually(lambda: phase(self._home, mailbox) == "Ready", "the mailbox is made")
        self._mailbox = self._site.proxy.api(f"root:espw:{mailbox}")
        self._workload = self._workspace()

    def _workspace(self) -> Api:
        kind = {"name": "edge-workload", "path": "root:espw"}
        spec = {"type": kind, "location": {"selector": {"matchLabels": on(self.far.name)}}}
        head = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "far"}}
        self._root.post(WORKSPACES, {**head, "spec": spec})
        eventually(lambda: phase(self._root, "far") == "Ready", "it is initialized")
        here = self._site.proxy.api("root:far")
        here.post(CONFIGMAPS, configmap("m", {"n": "0"}))
        place(here, "one", {"env": "one"}, CONFIGMAPS_OF_ALL)
        eventually(partial(is_projected, here, "one"), "it is placed")
        return here

    def link(self, member: Member) -> TcpRelay:
        return self.links[self.members.both.index(member)]

    def edit(self) -> None:
        self._number += 1
        self._workload.patch(f"{CONFIGMAPS}/m", {"data": {"n": str(self._number)}})

    def is_carried(self) -> bool:
        return data(self._mailbox, f"{CONFIGMAPS}/m") == {"n": str(self._number)}

    def stop(self) -> None:
        for each in self.members.both:
            each.process.stop()
            each.api.__exit__()
            each.nats.__exit__()
        for link in self.links:
            link.__exit__()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with Site(tmp_path / "site", shards=2, flags={"edge": True, "edge_replicas": 2}) as site:
        world = World(site, tmp_path)
        try:
            world.start()
            yield world
        finally:
            world.stop()


def test_a_member_that_does_not_reach_another_shard_leaves_its_work_to_one_that_does(world: World) -> None:
    gone, other, epoch = world.members.translator, world.members.other, world.members.roster()["epoch"]
    began_s = time.monotonic()
    world.link(gone).cut()
    world.edit()
    eventually(lambda: world.members.roster()["members"] == [other.name], "it leaves", timeout_s=TAKEOVER_S * 4)
    eventually(world.is_carried, "the other one carries what changed")
    print(f"carried again after {time.monotonic() - began_s:.1f} s")
    assert world.members.roster()["epoch"] != epoch
    assert ended(gone) == 1
    world.link(gone).join()
    gone.revive()
    eventually(world.members.are_all, "it is back")
    world.edit()
    eventually(world.is_carried, "changes are carried")
