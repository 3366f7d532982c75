"""`atoll start --shards 3 --edge --edge-replicas 3`: one command, and work goes on when a controller does not."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import ssl
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from harness.clients.api import PATIENCE_S, Api, configmap, eventually
from harness.clients.site_workspaces import on
from harness.servers.edge_service import GROUP, an_object, location
from harness.servers.processes import children
from harness.servers.shard_process import ShardProcess
from integration.edge.placed import CONFIGMAPS, CONFIGMAPS_OF_ALL, WORKSPACES, data, is_projected, phase, place

pytestmark = pytest.mark.long

SHARDS = ("root", "shard-1", "shard-2")
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/edge-controllers"
ROSTER = "edge.kubestellar.io/roster"
#: Within 30 s another one does what the one that is gone did; a busy machine has four times that.
TAKEOVER_S = 120.0


class Administered:
    """A site of one command as its administrator, who has a certificate."""

    def __init__(self, shard: ShardProcess, directory: Path) -> None:
        self.url, self._tls = shard.url, shard.new_tls()
        user, pair = shard.entry("user", "kcp-admin"), directory / "admin.pem"
        pair.write_bytes(b"".join(map(_decoded, (user["client-certificate-data"], user["client-key-data"]))))
        self._tls.load_cert_chain(pair)

    def token(self, user: str = "") -> str:
        raise AssertionError(f"{user} has no token")

    def tls(self) -> ssl.SSLContext:
        return self._tls

    def api(self, cluster: str) -> Api:
        return Api(self, cluster, "", patience_s=PATIENCE_S)


class World:
    """A workspace on each shard, whose ConfigMap is placed in one mailbox."""

    def __init__(self, shard: ShardProcess, directory: Path) -> None:
        self._shard = shard
        site = Administered(shard, directory)
        self.home, self._number = site.api("root:espw"), 0
        eventually(lambda: len(self.members()) == 3, "all are members", 120.0)
        inventory = site.api("root:imw1")
        made = inventory.post(f"{GROUP}/synctargets", an_object("SyncTarget", "one", id="one")).json["metadata"]
        inventory.post(f"{GROUP}/locations", location("one", env="one"))
        mailbox = f"{made['annotations']['kcp.io/cluster']}-mb-{made['uid']}"
        eventually(lambda: phase(self.home, mailbox) == "Ready", "the mailbox is made")
        self._mailbox = site.api(f"root:espw:{mailbox}")
        root = site.api("root")
        self._workspaces = [self._workspace(root, site, name) for name in SHARDS]

    def _workspace(self, root: Api, site: Administered, name: str) -> Api:
        kind = {"name": "edge-workload", "path": "root:espw"}
        spec = {"type": kind, "location": {"selector": {"matchLabels": on(name)}}}
        head = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": f"on-{name}"}}
        root.post(WORKSPACES, {**head, "spec": spec})
        eventually(lambda: phase(root, f"on-{name}") == "Ready", "it is initialized")
        here = site.api(f"root:on-{name}")
        here.post(CONFIGMAPS, configmap(name, {"n": "0"}))
        place(here, "one", {"env": "one"}, CONFIGMAPS_OF_ALL)
        eventually(partial(is_projected, here, "one"), "it is placed")
        return here

    def roster(self) -> dict[str, object]:
        found = self.home.send("GET", LEASE)
        text = found.json["metadata"]["annotations"].get(ROSTER, "{}") if found.code == 200 else "{}"
        return dict(json.loads(text))

    def members(self) -> list[str]:
        found = self.roster().get("members", [])
        assert isinstance(found, list)
        return found

    def translator(self) -> int:
        """The process that has what is not split."""
        edge = self._shard.root / "edge"
        whole = self.roster()["whole"]
        (directory,) = [each for each in (edge, edge / "1", edge / "2") if (each / "identity").read_text() == whole]
        return eventually(partial(holder, self._shard.pid, directory / "store"), "it runs")  # type: ignore[no-any-return]

    def edit(self) -> None:
        """Change the ConfigMap of each workspace."""
        self._number += 1
        for name, api in zip(SHARDS, self._workspaces, strict=True):
            api.patch(f"{CONFIGMAPS}/{name}", {"data": {"n": str(self._number)}})

    def is_carried(self) -> bool:
        wanted = {"n": str(self._number)}
        return all(data(self._mailbox, f"{CONFIGMAPS}/{name}") == wanted for name in SHARDS)

    def goes_on(self, disturb: Callable[[], object]) -> None:
        """Disturb a process: what is changed then is carried."""
        disturb()
        began_s = time.monotonic()
        self.edit()
        eventually(self.is_carried, "the change is carried", TAKEOVER_S)
        print(f"carried after {time.monotonic() - began_s:.1f} s")


def holder(parent: int, directory: Path) -> int:
    """The child of a process that has files below a directory open; 0 without one."""
    for pid in children(parent):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if any(each.readlink().is_relative_to(directory) for each in Path(f"/proc/{pid}/fd").iterdir()):
                return pid
    return 0


def _decoded(text: str) -> bytes:
    return base64.b64decode(text)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("replicas")
    with ShardProcess(directory, "--shards", "3", "--edge", "true", "--edge-replicas", "3") as running:
        yield World(running, directory)


def test_workspaces_of_all_shards_are_carried_and_go_on_when_a_controller_is_killed(world: World) -> None:
    world.edit()
    eventually(world.is_carried, "the workspaces of all shards are carried")
    before, killed = world.members(), world.translator()
    world.goes_on(lambda: os.kill(killed, signal.SIGKILL))
    eventually(lambda: world.members() == before and world.translator() != killed, "it is started again")


def test_another_one_carries_what_a_silent_controller_had_and_that_begins_anew(world: World) -> None:
    before, silent = world.members(), world.translator()
    world.goes_on(lambda: os.kill(silent, signal.SIGSTOP))
    assert len(world.members()) == 2
    assert world.translator() != silent
    os.kill(silent, signal.SIGCONT)
    eventually(lambda: world.members() == before, "it is started again")
    world.edit()
    eventually(world.is_carried, "what is changed then is carried")
