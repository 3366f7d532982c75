"""A site with the edge service, two workspaces for workloads, and an edge cluster with a syncer in this event loop.

    async with running(tmp_path, seed) as world:
        await asyncio.to_thread(world.round, ("root", partial(down, world.site.root)))

Workspaces lie on two shards, and the mailbox wherever it is placed. The model is what the workspaces acknowledged. What
it has all the time keeps its uid at the edge: nothing is taken away because a part is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Kubeconfig, Target
from atoll.machinery.client.lease import Timing
from atoll.standalone.edge_service import edge_users
from atoll.syncer.syncer import Options, Syncer
from harness.clients.api import Api, configmap, eventually, workspace_under
from harness.clients.site_operations import MAPS, down, frozen
from harness.clients.site_workspaces import WORKSPACES, on, ready
from harness.seeds import replay_command
from harness.servers.edge_service import GROUP, EdgeControllers, an_object, edge_init, location
from harness.servers.processes import atoll
from harness.servers.shard_process import ShardProcess
from harness.servers.site import Site
from integration.edge.mailbox_world import MailboxWorld

CAMPAIGN = "tests/fault/site/test_edge_campaign.py"
HOME = "root:edge-home"
#: Workspaces for workloads, and their shards.
PLACES = {"edge-first": "shard-1", "edge-second": "shard-2"}
DAMAGED_BYTES = 5
FULL = 507
#: A busy machine starts several processes meanwhile.
LONG_S = 300.0
Fault = tuple[str, Callable[[], AbstractContextManager[None]]]


class Machine:
    """The edge machine: a syncer in the test's event loop, which may be killed from another thread."""

    def __init__(self, target: Target, cluster: tuple[Target, str], state: Path) -> None:
        self._target, self._cluster, self._state = target, cluster, state
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def kill(self) -> None:
        """End it as a crash does: nothing is saved, no Lease is given up."""
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        timing = Timing(10.0, 1.0)
        options = Options("edge-uid", 500.0, 500, self._state, timing, timing)
        async with Client(self._target, "", retries=0) as center, Client(*self._cluster) as client:
            await Syncer(center, client, options).run()

    async def register(self, target: Target) -> None:
        """Run with another credential."""
        await self.kill()
        self._target = target
        await self.start()

    @contextlib.contextmanager
    def killed(self) -> Iterator[None]:
        asyncio.run_coroutine_threadsafe(self.kill(), self._loop).result(60.0)
        try:
            yield
        finally:
            asyncio.run_coroutine_threadsafe(self.start(), self._loop).result(60.0)


class World:
    """A site with its edge service, what its workspaces acknowledged, and the edge cluster."""

    def __init__(self, site: Site, controllers: EdgeControllers, edge: Api, seed: int) -> None:
        self.site, self.controllers, self.edge, self._dice = site, controllers, edge, random.Random(seed)
        self.clusters: dict[str, str] = {}
        self.wanted: dict[str, str] = {}
        self._number = 0
        self.reports: list[str] = []
        #: Writes that a full disk refused.
        self.refused = 0
        self.machine: Machine
        #: The name of the mailbox's Workspace.
        self.mailbox = ""

    def faults(self) -> list[Fault]:
        """Every part with every way to break it."""
        site = self.site
        found: list[Fault] = [("syncer", self.machine.killed), ("controllers", self._controllers_killed)]
        for process in (*site.shards.values(), site.proxy, site.nats):
            found += [(process.name, partial(down, process)), (process.name, partial(frozen, process))]
        return [*found, (site.nats.name, self._nats_wiped), (site.nats.name, self._nats_damaged)]

    @contextlib.contextmanager
    def _controllers_killed(self) -> Iterator[None]:
        self.controllers.stop(signal.SIGKILL)
        try:
            yield
        finally:
            # Not all shards may be there yet.
            self.controllers.spawn()

    @contextlib.contextmanager
    def _nats_wiped(self) -> Iterator[None]:
        with down(self.site.nats):
            self.site.nats.delete_store()
            yield

    @contextlib.contextmanager
    def _nats_damaged(self) -> Iterator[None]:
        """Some bytes of each block of messages are others."""
        with down(self.site.nats):
            blocks = sorted(self.site.layout.nats.glob("store/jetstream/*/streams/*/msgs/*.blk"))
            assert blocks
            for block in blocks:
                content = bytearray(block.read_bytes())
                for _ in range(DAMAGED_BYTES if content else 0):
                    content[self._dice.randrange(len(content))] ^= self._dice.randint(1, 255)
                block.write_bytes(content)
            yield

    def round(self, *faults: Fault, before: dict[str, str] | None = None) -> None:
        """Edit, break these parts, edit what answers, repair them, edit; then the edge is as the workspaces say."""
        before, kept = before or self.uids(), set(self.wanted)
        self.reports.append(" and ".join(f"{name} {fault}" for name, fault in faults))
        kept &= self._edit(frozenset())
        with ExitStack() as stack:
            for _, fault in faults:
                stack.enter_context(fault())
            kept &= self._edit(frozenset(name for name, _ in faults))
        kept &= self._edit(frozenset())
        eventually(lambda: self.found() == self.wanted, f"the edge is right after {self.reports[-1]}", LONG_S)
        after = self.uids()
        assert {name: after[name] for name in kept} == {name: before[name] for name in kept}, self.reports[-1]

    def _edit(self, broken: frozenset[str]) -> set[str]:
        """Change a few objects in the workspaces whose shards answer; return those that were there all the time."""
        touched = set()
        for place, shard in PLACES.items():
            if shard in broken:
                continue
            with contextlib.closing(self.site.shards[shard].api(self.clusters[place])) as api:
                for _ in range(self._dice.randint(1, 4)):
                    touched |= self._change(api, f"{place}-{self._dice.randrange(5)}")
        return set(self.wanted) - touched

    def _change(self, api: Api, name: str) -> set[str]:
        """Put or delete an object; return its name if it did not stay."""
        if name in self.wanted and self._dice.random() < 0.4:
            return self.drop(api, name)
        return self.put(api, name)

    def put(self, api: Api, name: str) -> set[str]:
        """Write another value; return the name if it is a new object. A full disk refuses it."""
        self._number += 1
        body, is_new = configmap(name, {"n": str(self._number)}), name not in self.wanted
        answer = api.send("POST", MAPS, body) if is_new else api.send("PUT", f"{MAPS}/{name}", body)
        if answer.code == FULL:
            self.refused += 1
            return set()
        assert answer.code == (201 if is_new else 200), answer.body
        self.wanted[name] = str(self._number)
        return {name} if is_new else set()

    def drop(self, api: Api, name: str) -> set[str]:
        """Delete an object, and return its name."""
        api.delete(f"{MAPS}/{name}")
        del self.wanted[name]
        return {name}

    def is_center_full(self) -> bool:
        """Whether the shards of all workspaces refuse new objects because their disk is full."""
        return all(self._is_full(place, shard) for place, shard in PLACES.items())

    def _is_full(self, place: str, shard: str) -> bool:
        with contextlib.closing(self.site.shards[shard].api(self.clusters[place])) as api:
            return _refuses_as_full(api)

    def is_cluster_full(self) -> bool:
        """Whether the edge cluster refuses new objects because its disk is full."""
        return _refuses_as_full(self.edge)

    def back_up(self, directory: Path) -> dict[str, str]:
        """`atoll backup` of all shards while they run, once the edge is right; return what is wanted then."""
        self._in_each("changed", "deleted")
        for name in self.site.shards:
            root = str(self.site.layout.shard(name))
            done = atoll("backup", "--root-directory", root, "--shard-name", name, "--to", str(directory / name))
            assert done.code == 0, done.stderr
        return dict(self.wanted)

    def work_on(self) -> dict[str, str]:
        """Make, change and delete an object in each workspace; return what the edge has then."""
        self._in_each("later", "changed", dropped="deleted")
        return dict(self.wanted)

    def _in_each(self, *put: str, dropped: str = "") -> None:
        for place, shard in PLACES.items():
            with contextlib.closing(self.site.shards[shard].api(self.clusters[place])) as api:
                for name in put:
                    self.put(api, f"{place}-{name}")
                if dropped:
                    self.drop(api, f"{place}-{dropped}")
        eventually(lambda: self.found() == self.wanted, f"the edge has {put}", LONG_S)

    def restore(self, directory: Path, yesterday: dict[str, str]) -> None:
        """`atoll restore` of all shards: what came later is at the edge alone."""
        self.controllers.stop(signal.SIGKILL)
        self.site.stop()
        for name in self.site.shards:
            root = str(self.site.layout.shard(name))
            store = ("--root-directory", root, "--shard-name", name)
            done = atoll("restore", *store, "--from", str(directory / name), "--in-place")
            assert done.code == 0, done.stderr
        self.site.start()
        self.controllers.spawn()
        self.wanted = yesterday

    def lose_mailbox(self) -> Target:
        """Delete the mailbox by hand; return the view of the new one, which may still be filling."""
        root, home = self.site.proxy.api("root"), self.site.proxy.api(HOME)
        path = f"{WORKSPACES}/{self.mailbox}"
        with contextlib.closing(root), contextlib.closing(home):
            before = home.get(path).json["spec"]["cluster"]
            home.delete(path)

            def is_another() -> bool:
                found = home.send("GET", path)
                is_ready = found.code == 200 and found.json.get("status", {}).get("phase") == "Ready"
                return is_ready and found.json["spec"]["cluster"] != before

            eventually(is_another, "it is made again", LONG_S)
            return registered(self.site, MailboxWorld(root, self.mailbox, service=HOME))

    def found(self) -> dict[str, str]:
        """What the edge has."""
        items = self.edge.get(MAPS).json["items"]
        return {each["metadata"]["name"]: (each.get("data") or {}).get("n", "") for each in items if _is_ours(each)}

    def uids(self) -> dict[str, str]:
        items = self.edge.get(MAPS).json["items"]
        return {each["metadata"]["name"]: each["metadata"]["uid"] for each in items if _is_ours(each)}

    def run(self, rounds: list[tuple[Fault, ...]], seed: int) -> None:
        try:
            for faults in rounds:
                self.round(*faults)
        except BaseException as failure:
            failure.add_note(f"{'; '.join(self.reports)}\nrun again: {replay_command(seed, CAMPAIGN)}")
            raise


def _refuses_as_full(api: Api) -> bool:
    """Whether a new object, which is gone again behind it, is refused by a full disk."""
    answer = api.send("POST", MAPS, configmap("room", {}))
    if answer.code == 201:
        api.delete(f"{MAPS}/room")
    return answer.code == FULL


def _is_ours(obj: dict[str, dict[str, str]]) -> bool:
    return obj["metadata"]["name"].startswith("edge-")


def fill(world: World) -> MailboxWorld:
    """Make inventory, workspaces and placements; return the mailbox."""
    site = world.site
    root = site.proxy.api("root")
    for name, kind, shard in (
        ("edge-stock", "edge-inventory", "shard-1"),
        *((n, "edge-workload", s) for n, s in PLACES.items()),
    ):
        spec = {"type": {"name": kind, "path": HOME}, "location": {"selector": {"matchLabels": on(shard)}}}
        root.post(
            WORKSPACES,
            {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}, "spec": spec},
        )
    world.controllers.start()
    for name in PLACES:
        world.clusters[name] = ready(root, name)["spec"]["cluster"]
    stock = site.proxy.api("root:edge-stock")
    eventually(lambda: stock.send("GET", f"{GROUP}/synctargets").code == 200, "it is initialized", LONG_S)
    target = stock.post(f"{GROUP}/synctargets", an_object("SyncTarget", "edge", id="edge")).json["metadata"]
    stock.post(f"{GROUP}/locations", location("edge", env="prod"))
    for name in PLACES:
        with contextlib.closing(site.proxy.api(f"root:{name}")) as api:
            eventually(lambda: api.send("GET", f"{GROUP}/edgeplacements").code == 200, "it is initialized", LONG_S)
            spec = {
                "locationSelectors": [{"matchLabels": {"env": "prod"}}],
                "downsync": [{"apiGroup": "", "resources": ["configmaps"]}],
            }
            api.post(f"{GROUP}/edgeplacements", an_object("EdgePlacement", "p", spec))
    mailbox = f"{target['annotations']['kcp.io/cluster']}-mb-{target['uid']}"
    home = site.proxy.api(HOME)
    eventually(lambda: home.send("GET", f"{WORKSPACES}/{mailbox}").code == 200, "its mailbox", LONG_S)
    found = MailboxWorld(root, mailbox, service=HOME)
    for each in (root, stock, home):
        each.close()
    return found


def registered(site: Site, mailbox: MailboxWorld) -> Target:
    """The view of a mailbox, as its syncer reaches it."""
    address, credential = urlsplit(site.proxy.url), (("authorization", f"Bearer {mailbox.token}"),)
    view = f"/services/mailbox/clusters/{mailbox.cluster}"
    return Target(address.hostname or "", address.port or 0, view, site.context(), credential)


@asynccontextmanager
async def running(directory: Path, seed: int) -> AsyncIterator[World]:
    """A site whose edge cluster is a workspace of a server of its own."""
    with ExitStack() as stack:
        site = await asyncio.to_thread(stack.enter_context, Site(directory / "center", shards=3, flags={"edge": True}))
        cluster = await asyncio.to_thread(stack.enter_context, ShardProcess(directory / "cluster"))
        path = workspace_under(Api(cluster, "root"))
        edge = Api(cluster, path)
        kubeconfig = directory / "edge.kubeconfig"
        await asyncio.to_thread(
            edge_init, site, kubeconfig, "--espw-path", HOME, "--ensure-imw", "", "--ensure-wmw", ""
        )
        flags = "--nats-url", site.nats.url, "--nats-credentials-file", str(site.layout.credential(edge_users(1)[0]))
        controllers = EdgeControllers(directory / "controllers", kubeconfig, *flags)
        stack.callback(controllers.stop)
        world = World(site, controllers, edge, seed)
        mailbox = await asyncio.to_thread(fill, world)
        there = Kubeconfig.load(str(cluster.kubeconfig)).target("root"), path
        world.mailbox = mailbox.name
        world.machine = Machine(registered(site, mailbox), there, directory / "cluster" / "syncer")
        await world.machine.start()
        try:
            yield world
        finally:
            await world.machine.kill()
