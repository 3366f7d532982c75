"""Syncers and controllers that are killed two hundred times under edits: the logs of all stores tell what they did.

Each part is two hundred kills with a seed of its own; a quarter of them wait until an edit came through since the last
one, and the others strike processes that start. What mailbox and edge had in turn is what the workspace had, some of it
left out: so nothing was taken away that was wanted, nothing that was deleted came back, and no value went back. Some of
the kills leave the mailbox without its list, as one that is still being filled; and an object of the edge's own has the
label of copies and stays as it is.
"""

from __future__ import annotations

import contextlib
import random
import signal
import threading
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from atoll.machinery.edge.names import SYNCED_BY
from fault.model.log import read, shard_store
from fault.recorder.history import Key
from fault.validators.copies import ABSENT, copy_follows, states, writes_are_few
from fault.validators.violation import VoidRun
from harness.clients.api import Api, configmap, eventually
from harness.seeds import replay_command, seed_of_run
from harness.servers.configured_nats import ConfiguredNats
from harness.servers.edge_service import GROUP, EdgeControllers, edge_init
from harness.servers.shard_process import ShardProcess
from harness.servers.syncer_process import Side, SyncerProcess
from integration.edge.chain import Chain
from integration.edge.placed import CONFIGMAPS, CONFIGMAPS_OF_ALL, PLACEMENTS, new_workload, phase, place

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

_THIS = "tests/fault/site/test_edge_kills.py"
KILLS, PARTS, NAMES = 200, 10, 8
#: The tag of what is the edge's own.
OWN = "own"
#: Of all kills this share waits until the chain has worked since the last one.
AT_WORK = 0.25
#: Between two writes.
PAUSE_S = 0.02
#: Of three kills one is the controllers'.
VICTIMS = ("syncer", "syncer", "controllers")
#: Of all kills this share takes the list too.
UNLISTED = 0.05
LIST = f"{GROUP}/syncerconfigs/the-one"
#: A busy machine starts the killed process meanwhile.
LONG_S = 120.0


class Places(NamedTuple):
    """A shard with the edge service, a workspace of it as edge cluster, and the processes that are killed."""

    shard: ShardProcess
    root: Api
    chain: Chain
    controllers: EdgeControllers
    syncer: SyncerProcess

    def kill(self, victim: str) -> None:
        """Kill a process and start it again."""
        if victim == "syncer":
            self.syncer.kill()
            self.syncer.start()
        else:
            self.controllers.stop(signal.SIGKILL)
            self.controllers.spawn()

    def unlist(self) -> None:
        """Take the list out of the mailbox while no controller runs, and start the syncer there."""
        self.controllers.stop(signal.SIGKILL)
        # The one that was taken last may not be written again yet.
        assert self.chain.mailbox.send("DELETE", LIST).code in (200, 404)
        self.kill("syncer")
        self.controllers.spawn()

    def at_edge(self, part: str) -> dict[str, str]:
        """The tags that the edge has of a part's objects, by name."""
        found = {each["metadata"]["name"]: each for each in self.chain.edge.get(CONFIGMAPS).json["items"]}
        return {name: each["data"]["tag"] for name, each in found.items() if name.startswith(f"{part}-")}


class Writer:
    """Edits a workspace without end, in a thread; each write has a tag that never was."""

    def __init__(self, workspace: Api, part: str, chance: random.Random) -> None:
        self._api, self._chance = workspace, chance
        self._names = [f"{part}-{number}" for number in range(NAMES)]
        self._end, self._thread = threading.Event(), threading.Thread(target=self._write)
        #: The number of the last write; the tags of the objects that are there.
        self.written, self.wanted = 0, dict[str, str]()
        self._failure: BaseException | None = None

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _write(self) -> None:
        try:
            while not self._end.wait(PAUSE_S):
                self._edit(self._chance.choice(self._names))
        except BaseException as failure:
            self._failure = failure

    def _edit(self, name: str) -> None:
        if name in self.wanted and self._chance.random() < 0.3:
            self._api.delete(f"{CONFIGMAPS}/{name}")
            del self.wanted[name]
        else:
            body = configmap(name, {"tag": f"t{self.written + 1}"})
            if name in self.wanted:
                self._api.put(f"{CONFIGMAPS}/{name}", body)
            else:
                self._api.post(CONFIGMAPS, body)
            self.wanted[name] = body["data"]["tag"]
        self.written += 1

    def until(self, number: int) -> None:
        """Wait until so many writes were made."""
        eventually(lambda: self.written >= number or self._failure, f"{number} writes", LONG_S)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    directory = tmp_path_factory.mktemp("kills")
    with contextlib.ExitStack() as stack:
        nats = stack.enter_context(ConfiguredNats(directory, "--shards", "root", "--edge", "edge-0"))
        shard = stack.enter_context(ShardProcess(directory, *nats.flags("shard-root")))
        kubeconfig = directory / "edge.kubeconfig"
        edge_init(shard, kubeconfig)
        controllers = EdgeControllers(directory / "controllers", kubeconfig, *nats.flags("edge-0"))
        stack.enter_context(controllers)
        root = Api(shard, "root")
        eventually(lambda: phase(root, "imw1") == "Ready", "the inventory is initialized", LONG_S)
        chain = Chain(shard, root, "killed")
        stack.callback(chain.close)
        view = Side(shard, f"/services/mailbox/clusters/{chain.world.cluster}", chain.world.token)
        syncer = SyncerProcess(directory / "syncer", view, Side(shard, chain.edge.prefix), chain.uid)
        stack.callback(syncer.kill)
        syncer.start()
        yield Places(shard, root, chain, controllers, syncer)


def killed(places: Places, writer: Writer, part: str, chance: random.Random) -> None:
    """Kill a process at some write after the last kill, or after the first that came to the edge since."""
    if chance.random() < AT_WORK:
        since = writer.written

        def works() -> bool:
            tags = places.at_edge(part).values()
            return any(int(tag.removeprefix("t")) > since for tag in tags)

        eventually(works, f"write {since} or a later one is at the edge", LONG_S)
    writer.until(writer.written + chance.randint(1, 8))
    if chance.random() < UNLISTED:
        places.unlist()
    else:
        places.kill(chance.choice(VICTIMS))


def compared(places: Places, workspace: Api, part: str) -> int:
    """Compare the histories of mailbox and edge with the workspace's; return how many writes the edge had."""
    log, judged = read(shard_store(places.shard.root)).log, 0
    clusters = [cluster_of(api) for api in (workspace, places.chain.mailbox, places.chain.edge)]
    for number in range(NAMES):
        keys = (Key(cluster, "default", f"{part}-{number}") for cluster in clusters)
        first, *copies = (log.by_key.get(key, []) for key in keys)
        for copy in copies:
            copy_follows(first, copy)
            writes_are_few(copy)
        judged += len(copies[-1])
    return judged


def make_own(places: Places, part: str) -> None:
    """Write an object of the edge's own with a name of its own and the label of copies."""
    places.chain.edge.post(CONFIGMAPS, configmap(f"own-{part}", {"tag": OWN}, labels={SYNCED_BY: places.chain.uid}))


def own_stays(places: Places, part: str) -> None:
    """The object of the edge's own was written once."""
    key = Key(cluster_of(places.chain.edge), "default", f"own-{part}")
    assert states(read(shard_store(places.shard.root)).log.by_key[key]) == [ABSENT, OWN]


def cluster_of(api: Api) -> str:
    """The logical cluster of a workspace."""
    return str(api.get("/api/v1/namespaces/default").json["metadata"]["annotations"]["kcp.io/cluster"])


@pytest.mark.parametrize("part", range(PARTS))
def test_two_hundred_kills_leave_only_what_the_workspace_had_in_this_order(places: Places, part: int) -> None:
    seed = seed_of_run(part)
    chance, name, workspace = random.Random(seed), f"p{part}", new_workload(places.root)
    place(workspace, "p", {"env": "killed"}, CONFIGMAPS_OF_ALL)
    make_own(places, name)
    try:
        with Writer(workspace, name, random.Random(seed + 1)) as writer:
            for _ in range(KILLS):
                killed(places, writer, name, chance)
        eventually(lambda: places.at_edge(name) == writer.wanted, "the edge has what the workspace has", LONG_S)
        judged = compared(places, workspace, name)
        own_stays(places, name)
        print(f"{KILLS} kills, {writer.written} writes, {judged} of them at the edge")
        if judged < KILLS:
            raise VoidRun(f"{judged} writes at the edge in {KILLS} kills")
    except BaseException as failure:
        failure.add_note(f"run again: {replay_command(seed, _THIS)}")
        raise
    finally:
        workspace.delete(PLACEMENTS)
        workspace.close()
