"""Simulated edges: the syncer itself, many in one process, each between its mailbox and a workspace as its cluster.

A workspace passes the contract tests of edge clusters (`tests/contract/edge`). Their server is another one than the
center, and the edges of a process reach the center through one relay that counts bytes. `edge_processes` has several.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import structlog

from atoll.cli.kubectl.kubestellar import account
from atoll.cli.kubectl.kubestellar.account import Account
from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Kubeconfig, Target
from atoll.machinery.client.lease import Timing
from atoll.machinery.client.resource import WORKSPACES
from atoll.machinery.edge.names import MAILBOX_VIEW, ObjectRef
from atoll.machinery.meta.objects import Object, status_of
from atoll.machinery.process.tasks import stop
from atoll.syncer.syncer import Options, Syncer
from harness.waits import until
from loadtest.bench import workspace
from loadtest.edge_site import Mailbox
from loadtest.edge_syncer import LIFETIME_S, NAMESPACE, RATE
from loadtest.parallel import each

#: How long the preparation may take.
PATIENCE_S = 900.0
#: The Lease at its cluster, which is not measured: ten times the default, so that the clusters of thousands of edges do
#: not take the cores of the center.
EDGE_TIMING = Timing(600.0, 200.0)


class Edge:
    """One simulated edge; it may be started and stopped any number of times."""

    def __init__(self, mailbox: Mailbox, center: Target, cluster: Target) -> None:
        self.mailbox, self._center, self.cluster = mailbox, center, cluster
        self.syncer: Syncer | None = None
        self._task: asyncio.Task[None] | None = None
        self._clients: tuple[Client, ...] = ()

    async def start(self) -> None:
        center, cluster = self._clients = Client(self._center, retries=0), Client(self.cluster)
        options = Options(self.mailbox.uid, float(RATE), int(RATE), edge_timing=EDGE_TIMING)
        self.syncer = Syncer(center, cluster, options)
        self._task = asyncio.create_task(self.syncer.run())

    async def stop(self) -> None:
        """Stop it in order. Harmless if it does not run."""
        if self._task is not None and self.syncer is not None:
            await stop(self._task)
            await self.syncer.close()
            self._task = None
            for client in self._clients:
                await client.close()

    @property
    def failure(self) -> str:
        """Why it does not follow its mailbox, empty while it does."""
        if self._task is not None and self._task.done() and not self._task.cancelled():
            return f"it ended: {self._task.exception()}"
        return self.syncer.mailbox.failure if self.syncer is not None else "it does not run"

    def data(self, name: str) -> Object:
        """The data of a ConfigMap at its cluster, empty while that is not there."""
        ref = ObjectRef("", "configmaps", NAMESPACE, name)
        found = self.syncer.edge.get(ref) if self.syncer is not None else None
        return (found or {}).get("data") or {}

    def has(self, objects: int) -> bool:
        """Whether it brought so many objects to its cluster, and has nothing left to do."""
        syncer = self.syncer
        if syncer is None or syncer.downsync is None or syncer.returns is None:
            return False
        is_idle = not len(syncer.downsync.queue) and not len(syncer.returns.queue)
        kept = sum(ref.resource == "configmaps" for ref in syncer.edge.refs())
        return is_idle and kept >= objects and syncer.may_report


def cluster_of(kubeconfig: Path, mailbox: Mailbox) -> Target:
    """The workspace that is the cluster of a mailbox's edge, at the server of this kubeconfig."""
    below = Kubeconfig.load(str(kubeconfig)).target("root")
    return msgspec.structs.replace(below, path=below.path_of(f"root:{_name(mailbox)}"))


def _name(mailbox: Mailbox) -> str:
    return f"cluster-{mailbox.target}"


@asynccontextmanager
async def fleet(center: Path, clusters: Path, mailboxes: list[Mailbox], port: int) -> AsyncIterator[list[Edge]]:
    """Edges for these mailboxes, which are not started, by two kubeconfigs; `port` is another one of the center."""
    place = Kubeconfig.load(str(center)).target("root")
    below = Kubeconfig.load(str(clusters)).target("root")
    wanted = Account(NAMESPACE, {}, LIFETIME_S)

    async def make(mailbox: Mailbox) -> Edge:
        token = await account.ensure(admin.cluster(mailbox.cluster), wanted, silent=True)
        view = msgspec.structs.replace(
            place,
            port=port,
            path=f"/services/{MAILBOX_VIEW}/clusters/{mailbox.cluster}",
            headers=(("authorization", f"Bearer {token}"),),
        )
        name = _name(mailbox)
        await root.create(WORKSPACES, workspace(name))

        async def is_ready() -> bool:
            return status_of(await root.get(WORKSPACES, name)).get("phase") == "Ready"

        await until(is_ready, "the cluster of an edge is ready", PATIENCE_S)
        return Edge(mailbox, view, msgspec.structs.replace(below, path=below.path_of(f"root:{name}")))

    async with Client(place) as admin, Client(below) as root:
        edges = await each(mailboxes, make)
    before = structlog.get_config()["wrapper_class"]
    # A line for each reconcile would be most of what this process does.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    try:
        yield edges
    finally:
        await asyncio.gather(*(edge.stop() for edge in edges), return_exceptions=True)
        structlog.configure(wrapper_class=before)
