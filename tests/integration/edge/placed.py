"""A workspace for workloads and the mailboxes of the SyncTargets `one` and `two`, with what placements say of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from atoll.machinery.edge.syncerconfigs import number_of
from harness.clients.api import Api, Object, eventually
from harness.servers.edge_service import GROUP, an_object, location

WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
TARGETS, LOCATIONS, PLACEMENTS = (f"{GROUP}/{each}" for each in ("synctargets", "locations", "edgeplacements"))
#: Those of this file; others may leave theirs.
NAMES = ("one", "two")


def is_created(api: Api, path: str, body: Object) -> bool:
    return api.send("POST", path, body).code == 201


@pytest.fixture(scope="module")
def inventory(root: Api) -> Iterator[Api]:
    """The workspace for inventories with the SyncTargets and Locations `one` and `two`."""
    here = root.at("root:imw1")
    for name in NAMES:
        for path, body in (
            (TARGETS, an_object("SyncTarget", name, id=name)),
            (LOCATIONS, location(name, env=name, fleet="all")),
        ):
            eventually(partial(is_created, here, path, body), "those of another file are gone")
    yield here
    for path in (TARGETS, LOCATIONS):
        here.delete(path)
    here.close()


@pytest.fixture(scope="module")
def mailboxes(root: Api, inventory: Api) -> Iterator[dict[str, Api]]:
    """The mailboxes of both, ready, with their lists."""
    home, found = root.at("root:espw"), {}
    for each in (inventory.get(f"{TARGETS}/{name}").json for name in NAMES):
        name = f"{each['metadata']['annotations']['kcp.io/cluster']}-mb-{each['metadata']['uid']}"
        found[each["metadata"]["name"]] = root.at(f"root:espw:{name}")
    names = [api.cluster.rpartition(":")[2] for api in found.values()]
    eventually(lambda: {phase(home, name) for name in names} == {"Ready"}, "the mailboxes are ready")
    eventually(lambda: all(map(is_whole, found.values())), "the lists are there")
    yield found
    for api in (home, *found.values()):
        api.close()


def new_workload(root: Api) -> Api:
    """Make a workspace for workloads."""
    spec = {"type": {"name": "edge-workload", "path": "root:espw"}}
    head = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"generateName": "work-"}}
    name = root.post(WORKSPACES, {**head, "spec": spec}).json["metadata"]["name"]
    eventually(lambda: phase(root, name) == "Ready", "the workspace is ready")
    return root.at(f"root:{name}")


@pytest.fixture
def workload(root: Api) -> Iterator[Api]:
    """A workspace for workloads of its own."""
    here = new_workload(root)
    yield here
    here.delete(PLACEMENTS)
    here.close()


def phase(api: Api, name: str) -> str:
    found = api.send("GET", f"{WORKSPACES}/{name}")
    return str(found.json["status"].get("phase")) if found.code == 200 else ""


def place(api: Api, name: str, where: Object, *tests: Object, **spec: object) -> None:
    selectors = [{"matchLabels": where}]
    api.post(PLACEMENTS, an_object("EdgePlacement", name, {"locationSelectors": selectors, "downsync": tests, **spec}))


def data(api: Api, path: str) -> object:
    found = api.send("GET", path)
    return found.json.get("data") if found.code == 200 else None


def listed(api: Api) -> Object:
    """The spec of the list in a mailbox."""
    found: Object = api.get(f"{GROUP}/syncerconfigs/the-one").json["spec"]
    return found


def is_whole(mailbox: Api) -> bool:
    """Whether the translator wrote the list, which comes after a mailbox is ready."""
    found = mailbox.send("GET", f"{GROUP}/syncerconfigs/the-one")
    return found.code == 200 and number_of(found.json) > 0


def condition(api: Api, name: str, type_: str = "Projected") -> Object:
    """A condition of a placement, without its time."""
    found = api.get(f"{PLACEMENTS}/{name}").json.get("status", {}).get("conditions", ())
    (row,) = [each for each in found if each["type"] == type_] or [{}]
    return {key: value for key, value in row.items() if key != "lastTransitionTime"}


def is_projected(api: Api, name: str) -> bool:
    return condition(api, name).get("status") == "True"


#: A resource that every edge cluster counts as having, so that its definition is not copied.
BUILT_IN = "gauges.built.example.com"
CONFIGMAPS_OF_ALL = {"apiGroup": "", "resources": ["configmaps"]}
