"""The whole way of an object: workspaces, controllers, a mailbox, and a syncer at a workspace as edge cluster."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from functools import partial

from atoll.machinery.client.kubeconfig import Kubeconfig, Target
from atoll.syncer.syncer import Options, Syncer
from harness.clients.api import Api, eventually, workspace_under
from harness.servers.edge_service import an_object, location
from harness.servers.in_process.syncer import SERVED, TIMING, syncing
from harness.servers.shard_process import ShardProcess
from integration.edge.mailbox_world import MailboxWorld
from integration.edge.placed import LOCATIONS, TARGETS, is_created, phase


class Chain:
    """The SyncTarget `name` with a Location of the label `env`, its mailbox, and its edge cluster."""

    def __init__(self, shard: ShardProcess, root: Api, name: str) -> None:
        self.name, self._inventory, home = name, root.at("root:imw1"), root.at("root:espw")
        for path, body in ((TARGETS, an_object("SyncTarget", name, id=name)), (LOCATIONS, location(name, env=name))):
            eventually(partial(is_created, self._inventory, path, body), "those of another file are gone")
        target = self._inventory.get(f"{TARGETS}/{name}").json["metadata"]
        mailbox = f"{target['annotations']['kcp.io/cluster']}-mb-{target['uid']}"
        eventually(lambda: phase(home, mailbox) == "Ready", "the mailbox is ready")
        home.close()
        self.uid, self.world = target["uid"], MailboxWorld(root, mailbox)
        self.mailbox = self.world.admin
        server = Kubeconfig.load(str(shard.kubeconfig)).target("root")
        view = f"/services/mailbox/clusters/{self.world.cluster}"
        credential = (("authorization", f"Bearer {self.world.token}"),)
        self._view = Target(server.host, server.port, view, server.tls, credential)
        path = workspace_under(root)
        self._cluster = server, path
        #: An administrator of the edge cluster.
        self.edge = root.at(path)

    def syncing(self) -> AbstractAsyncContextManager[Syncer]:
        """Run the syncer until the context ends."""
        return syncing(self._cluster, self._view, Options(self.uid, 500.0, 500, None, TIMING, SERVED))

    def close(self) -> None:
        """Take the edge cluster out of the inventory."""
        for path in (TARGETS, LOCATIONS):
            self._inventory.delete(f"{path}/{self.name}")
        for api in (self._inventory, self.mailbox, self.world.syncer, self.edge):
            api.close()


def is_quiet(syncer: Syncer) -> bool:
    """Whether a syncer has nothing left to do with objects."""
    parts = syncer.downsync, syncer.returns, syncer.upsync
    return all(each is not None and not len(each.queue) for each in parts)
