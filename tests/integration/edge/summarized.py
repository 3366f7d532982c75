"""A workspace for workloads, three mailboxes, and their syncers as a test plays them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from harness.clients.api import MERGE, Api, Object, crd, define, eventually
from harness.servers.edge_service import GROUP, an_object, location
from integration.edge.mailbox_world import CONFIGS, MailboxWorld
from integration.edge.placed import LOCATIONS, TARGETS, is_created, is_whole, new_workload, phase

COLLECTORS, SUMMARIES = f"{GROUP}/statuscollectors", f"{GROUP}/statussummaries"
DOMAIN = "harbour.example.com"
BOATS, HARBOURS = f"/apis/{DOMAIN}/v1/namespaces/default/boats", f"/apis/{DOMAIN}/v1/harbours"
NAMES = ("s-one", "s-two", "s-three")
FLEET = {"fleet": "summarized"}
#: Above every revision.
FAR = str(10**17)


class Edge:
    """One edge cluster: what its syncer writes."""

    def __init__(self, world: MailboxWorld) -> None:
        self.world, self._revision = world, 0

    def report(self, path: str, status: Object) -> None:
        """Return the status of an object, once it is there and listed."""
        self._revision += 1
        metadata = {"annotations": {"edge.kubestellar.io/edge-revision": f"edge/{self._revision}"}}
        body = {"metadata": metadata, "status": status}

        def is_written() -> bool:
            return self.world.syncer.send("PATCH", f"{path}/status", body, kind=MERGE).code == 200

        eventually(is_written, f"{path} is there")

    def applied(self, *errors: Object, revision: str = FAR) -> None:
        """Say up to where everything is applied, but for these errors."""
        status = {"status": {"appliedRevision": revision, "errors": list(errors)}}
        self.world.syncer.patch(f"{CONFIGS}/the-one/status", status)


@pytest.fixture(scope="module")
def edges(root: Api) -> Iterator[dict[str, Edge]]:
    """Three edge clusters, with Locations of the fleet."""
    here, home, found = root.at("root:imw1"), root.at("root:espw"), {}
    for name in NAMES:
        for path, body in (
            (TARGETS, an_object("SyncTarget", name, id=name)),
            (LOCATIONS, location(name, env=name, **FLEET)),
        ):
            eventually(partial(is_created, here, path, body), "those of another file are gone")
    for name in NAMES:
        target = here.get(f"{TARGETS}/{name}").json["metadata"]
        mailbox = f"{target['annotations']['kcp.io/cluster']}-mb-{target['uid']}"
        eventually(partial(lambda mailbox: phase(home, mailbox) == "Ready", mailbox), "the mailbox is ready")
        found[name] = Edge(MailboxWorld(root, mailbox))
        eventually(partial(is_whole, found[name].world.admin), "the list is there")
    yield found
    for name in NAMES:
        for path in (TARGETS, LOCATIONS):
            here.send("DELETE", f"{path}/{name}")
    for api in (
        here,
        home,
        *(each.world.admin for each in found.values()),
        *(each.world.syncer for each in found.values()),
    ):
        api.close()


@pytest.fixture(scope="module")
def harbour(root: Api) -> Iterator[Api]:
    """A workspace with boats, which have a namespace, and harbours, which have none."""
    here = new_workload(root)
    define(here, crd("boats", DOMAIN))
    define(here, crd("harbours", DOMAIN, scope="Cluster"))
    yield here
    here.close()


def boat(name: str, replicas: int = 3, **metadata: object) -> Object:
    head = {"apiVersion": f"{DOMAIN}/v1", "kind": "Boat", "metadata": {"name": name, **metadata}}
    return {**head, "spec": {"replicas": replicas}}


def summaries(api: Api, name: str, namespace: str = "default") -> list[Object]:
    """The summaries of an object."""
    path = f"{SUMMARIES.replace('/statussummaries', '')}/namespaces/{namespace}/statussummaries"
    selector = f"labelSelector=status.kubestellar.io/name%3D{name}"
    return list(api.get(f"{path}?{selector}").json["items"])


def summary(api: Api, name: str, namespace: str = "default") -> Object:
    """The only summary of an object, nothing while there is none or several."""
    found = summaries(api, name, namespace)
    return found[0] if len(found) == 1 else {}


def counts(api: Api, name: str, namespace: str = "default") -> tuple[int, ...]:
    """Destinations, those that reported, that are up to date, and that are broken."""
    found = summary(api, name, namespace).get("counts") or {}
    return tuple(found.get(each, -1) for each in ("destinations", "reported", "upToDate", "broken"))


def result(api: Api, name: str, collector: str, namespace: str = "default") -> list[list[object]]:
    """The rows of a result."""
    for each in summary(api, name, namespace).get("results") or ():
        if each["name"] == collector:
            return [[_value(cell) for cell in row["columns"]] for row in each["rows"]]
    return []


def _value(cell: Object) -> object:
    return next((value for key, value in cell.items() if key != "type"), None)
