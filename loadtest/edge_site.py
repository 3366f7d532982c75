"""A server with the edge service, and what is placed in it: the surroundings of the scenario `edge`.

The server is executed with all its imports, as an operator starts it. Its controllers are a child of it and may run on
any core. Objects are placed by the documented client; when they arrive is seen by watches.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from atoll.edge.kinds import LOCATIONS, PLACEMENTS, SYNC_TARGETS
from atoll.edge.mailboxes import kept_workspace, mailbox_name
from atoll.machinery.client.client import Client
from atoll.machinery.client.informer import Informer
from atoll.machinery.client.resource import WORKSPACES, Resource
from atoll.machinery.meta.objects import Object, annotations_of
from atoll.machinery.meta.wellknown import CLUSTER
from atoll.machinery.process.listen_address import PORT_FILE
from atoll.machinery.process.tasks import stop
from harness.servers.edge_service import an_object, location
from harness.waits import until
from loadtest import processes
from loadtest.parallel import each
from loadtest.server import Server

HOME, INVENTORY, WORKLOAD = "root:espw", "root:imw1", "root:wmw1"
LIMIT_S = 120.0
#: Bytecode is compiled once, as where the package is installed. With an environment of its own a process is executed.
COMPILED = {
    "PYTHONDONTWRITEBYTECODE": "",
    "PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir()) / f"loadtest-bytecode-{os.getuid()}"),
}


class Mailbox(msgspec.Struct, frozen=True):
    """A mailbox that is ready: name and UID of its SyncTarget, and its logical cluster."""

    target: str
    uid: str
    cluster: str


class EdgeServer(Server):
    """`atoll start --edge`."""

    def __init__(self, directory: Path, *flags: str, cores: set[int] | None = None) -> None:
        super().__init__(directory, cores or processes.cores()[0], "--edge", "true", *flags)
        self.environment = COMPILED
        #: Further proxies, which are started beside it (`edge_proxy`).
        self.proxies: list[int] = []

    @property
    def all_processes(self) -> list[int]:
        """All processes of the center."""
        return [*processes.tree(self.pid), *self.proxies]

    async def controllers(self) -> int:
        """Wait until the controllers are ready, and let them run anywhere; return their process id."""
        await until(self._are_ready, "the controllers are ready", LIMIT_S)
        (found,) = (pid for pid in processes.tree(self.pid) if processes.name(pid) == "edge-controllers")
        os.sched_setaffinity(found, processes.USABLE)
        return found

    async def _are_ready(self) -> bool:
        return await asyncio.to_thread(self._ask)

    def _ask(self) -> bool:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            port = int((self.root / "edge" / PORT_FILE).read_text())
            connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=context)
            with contextlib.closing(connection):
                connection.request("GET", "/readyz")
                return connection.getresponse().status == 200
        return False


class Arrivals:
    """When objects of a kind were seen in a state that is waited for, in seconds of `perf_counter`."""

    def __init__(self, client: Client, resource: Resource) -> None:
        self.informer = Informer(client, resource, self._changed)
        self._waiting: dict[str, tuple[Callable[[Object], bool], asyncio.Future[float]]] = {}

    def expect(self, name: str, holds: Callable[[Object], bool]) -> asyncio.Future[float]:
        """The moment when an object is next seen in a state."""
        found = asyncio.get_running_loop().create_future()
        self._waiting[name] = holds, found
        return found

    def _changed(self, old: Object | None, new: Object | None) -> None:
        name = new["metadata"]["name"] if new is not None else ""
        if name not in self._waiting or new is None:
            return
        holds, found = self._waiting[name]
        if holds(new):
            del self._waiting[name]
            found.set_result(time.perf_counter())


@asynccontextmanager
async def arrivals(client: Client, resource: Resource) -> AsyncIterator[Arrivals]:
    """Watch a kind while the block runs."""
    found = Arrivals(client, resource)
    task = asyncio.create_task(found.informer.run())
    try:
        await found.informer.synced.wait()
        yield found
    finally:
        await stop(task)


async def make_mailboxes(
    server: EdgeServer, names: list[str], *, limit_s: float = LIMIT_S, **labels: str
) -> list[Mailbox]:
    """Make SyncTargets, each at a Location of its own with these labels; return their mailboxes once they are ready."""
    async with server.client(INVENTORY) as inventory, server.client(HOME) as home:
        await until(lambda: _serves(inventory), "the inventory is initialized", limit_s)
        targets = await each(names, lambda name: inventory.create(SYNC_TARGETS, an_object("SyncTarget", name, id=name)))
        wanted = {mailbox_name(annotations_of(obj)[CLUSTER], obj["metadata"]["uid"]): obj for obj in targets}
        async with asyncio.timeout(limit_s):
            clusters = await _clusters(home, wanted)
        await each(names, lambda name: inventory.create(LOCATIONS, location(name, **labels)))
    return [
        Mailbox(found["metadata"]["name"], found["metadata"]["uid"], clusters[name]) for name, found in wanted.items()
    ]


async def _serves(inventory: Client) -> bool:
    try:
        await inventory.list(SYNC_TARGETS)
    except Exception:
        return False
    return True


async def _clusters(home: Client, names: Collection[str]) -> dict[str, str]:
    """Watch until all these mailboxes are ready; return their logical clusters."""
    found: dict[str, str] = {}
    complete = asyncio.Event()

    def changed(old: Object | None, new: Object | None) -> None:
        if new is not None and new["status"]["phase"] == "Ready" and new["metadata"]["name"] in names:
            found[new["metadata"]["name"]] = str(new["spec"]["cluster"])
            if len(found) == len(names):
                complete.set()

    task = asyncio.create_task(Informer(home, WORKSPACES, changed, kept_workspace).run())
    try:
        await complete.wait()
    finally:
        await stop(task)
    return found


def config_maps_of(fleet: str) -> Object:
    """Return the test of a placement that selects ConfigMaps by their label `fleet`."""
    return {"apiGroup": "", "resources": ["configmaps"], "labelSelectors": [{"matchLabels": {"fleet": fleet}}]}


async def place(workload: Client, name: str, resources: Object, **spec: object) -> None:
    """Make a placement at the Locations with the label `fleet` of its name."""
    selectors = [{"matchLabels": {"fleet": name}}]
    body = an_object("EdgePlacement", name, {"locationSelectors": selectors, "downsync": [resources], **spec})
    await workload.create(PLACEMENTS, body)
