"""A mailbox of a shard, with the methods of the one in memory (`harness.servers.in_process.mailbox_view`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import pytest

from atoll.machinery.client.kubeconfig import Kubeconfig, Target
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.placements import upsync_set
from atoll.machinery.edge.syncerconfigs import plan_parts, specs_of
from atoll.machinery.meta.objects import Object
from harness.clients.api import APPLY, Api, crd, define
from harness.servers.in_process.mailbox_view import ref_of
from harness.servers.shard_process import ShardProcess
from integration.edge.mailbox_world import CONFIGS, MailboxWorld


@pytest.fixture(scope="module")
def world(root: Api) -> MailboxWorld:
    """A mailbox whose objects may be circles, and the account of its syncer."""
    found = MailboxWorld(root)
    define(found.admin, crd("circles"))
    return found


@pytest.fixture
def real_mailbox(world: MailboxWorld, edge: ShardProcess) -> RealMailbox:
    return RealMailbox(world, Kubeconfig.load(str(edge.kubeconfig)).target("root"))


class RealMailbox:
    """`target` is where its syncer connects."""

    def __init__(self, world: MailboxWorld, server: Target) -> None:
        self._world = world
        path = f"/services/mailbox/clusters/{world.cluster}"
        headers = (("authorization", f"Bearer {world.token}"),)
        self.target = Target(server.host, server.port, path, server.tls, headers)
        self._listed: dict[ObjectRef, str] = {}
        self._upsync: list[Object] = []

    def place(self, *objects: Object, resource: str = "configmaps") -> list[ObjectRef]:
        """Put objects into the mailbox, and list them."""
        refs = [ref_of(obj, resource) for obj in objects]
        for ref, obj in zip(refs, objects, strict=True):
            path = f"{self._path(ref, obj)}?fieldManager=placement-translator&force=true"
            answer = self._world.admin.send("PATCH", path, obj, kind=APPLY)
            assert answer.code in (200, 201), answer.body
            self._listed[ref] = obj["apiVersion"].rpartition("/")[2]
        self._write_config()
        return refs

    def withdraw(self, *refs: ObjectRef) -> None:
        """List objects no more, and delete them."""
        versions = {ref: self._listed.pop(ref) for ref in refs}
        self._write_config()
        for ref, version in versions.items():
            group = f"{ref.group}/" if ref.group else ""
            self._world.admin.delete(self._path(ref, {"apiVersion": f"{group}{version}"}))

    def upsync(self, sets: Iterable[Object]) -> None:
        """Ask for objects of the edge."""
        self._upsync = list(sets)
        self._write_config()

    def status(self, ref: ObjectRef) -> Object:
        """The status of an object that is listed."""
        group = f"{ref.group}/" if ref.group else ""
        path = self._path(ref, {"apiVersion": f"{group}{self._listed[ref]}"})
        return cast(Object, self._world.admin.get(path).json.get("status") or {})

    def _write_config(self) -> None:
        admin = self._world.admin
        existing = admin.get(CONFIGS).json["items"]
        existing = [{"apiVersion": "edge.kubestellar.io/v2alpha1", "kind": "SyncerConfig", **each} for each in existing]
        plans = plan_parts(specs_of(dict(self._listed), [upsync_set(each) for each in self._upsync]), existing, 1)
        for config in (*plans.create, *plans.apply):
            path = f"{CONFIGS}/{config['metadata']['name']}?fieldManager=placement-translator&force=true"
            answer = admin.send("PATCH", path, config, kind=APPLY)
            assert answer.code in (200, 201), answer.body

    @staticmethod
    def _path(ref: ObjectRef, obj: Object) -> str:
        version = obj["apiVersion"].rpartition("/")[2]
        resource = Resource(ref.group, version, ref.resource, namespaced=bool(ref.namespace))
        return resource.path(ref.namespace, ref.name)
