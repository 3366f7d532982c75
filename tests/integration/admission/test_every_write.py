"""Every write by which an object is written asks every kind of configured admission, and the server's own plug-ins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from harness.clients.api import (
    APPLY,
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    Answer,
    Api,
    Object,
    configmap,
    crd,
    define,
    eventually,
    workspace_under,
)
from harness.clients.refusers import MARK, REFUSERS, Plugin, Refuser
from harness.data.kind_samples import certificate_request
from harness.servers.mutant_shard import patched
from harness.servers.shard_process import ShardProcess

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
WIDGETS = "/apis/shapes.example.com/v1/namespaces/default/widgets"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
NAME = f"{MARK}-1"
SPACE = f"/api/v1/namespaces/{MARK}-ns"
OBJECT, WIDGET = f"{CONFIGMAPS}/{NAME}", f"{WIDGETS}/{NAME}"

Write = Callable[[Api], Answer]
PLUGIN = "plug-in"


def widget(name: str = NAME, **fields: Any) -> Object:
    return {"apiVersion": "shapes.example.com/v1", "kind": "Widget", "metadata": {"name": name}, **fields}


def scale(replicas: int) -> Object:
    metadata = {"name": NAME, "namespace": "default"}
    return {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": {"replicas": replicas}}


def replaced(api: Api, path: str, **fields: Any) -> Answer:
    """A PUT of an object as it is, with other fields."""
    found = api.get(path).json
    return api.put(path, {**found, **fields}, expect=0)


def applied(api: Api, path: str, body: Object) -> Answer:
    return api.send("PATCH", f"{path}?fieldManager=test&force=true", body, kind=APPLY)


WRITES: dict[str, Write] = {
    "create": lambda api: api.post(CONFIGMAPS, configmap(f"{MARK}-2"), expect=0),
    "dry run": lambda api: api.post(f"{CONFIGMAPS}?dryRun=All", configmap(f"{MARK}-3"), expect=0),
    "put": lambda api: replaced(api, OBJECT, data={"a": "put"}),
    "json patch": lambda api: api.patch(
        OBJECT, [{"op": "add", "path": "/data", "value": {"a": "json"}}], JSON_PATCH, expect=0
    ),
    "merge patch": lambda api: api.patch(OBJECT, {"data": {"a": "merge"}}, MERGE, expect=0),
    "strategic patch": lambda api: api.patch(OBJECT, {"data": {"a": "strategic"}}, STRATEGIC, expect=0),
    "apply": lambda api: applied(api, OBJECT, configmap(NAME, {"a": "apply"})),
    "apply that creates": lambda api: applied(api, f"{CONFIGMAPS}/{MARK}-4", configmap(f"{MARK}-4")),
    "custom create": lambda api: api.post(WIDGETS, widget(f"{MARK}-2"), expect=0),
    "custom put": lambda api: replaced(api, WIDGET, spec={"replicas": 5}),
    "put of status": lambda api: replaced(api, f"{WIDGET}/status", status={"replicas": 3}),
    "patch of status": lambda api: api.patch(f"{WIDGET}/status", {"status": {"replicas": 4}}, MERGE, expect=0),
    "put of scale": lambda api: api.put(f"{WIDGET}/scale", scale(8), expect=0),
    "patch of scale": lambda api: api.patch(f"{WIDGET}/scale", {"spec": {"replicas": 9}}, MERGE, expect=0),
    "finalize": lambda api: api.put(f"{SPACE}/finalize", {"metadata": {"name": f"{MARK}-ns"}, "spec": {}}, expect=0),
    "approval": lambda api: api.patch(f"{REQUESTS}/{NAME}/approval", {"status": {"conditions": []}}, MERGE, expect=0),
    "delete": lambda api: api.delete(OBJECT, expect=0),
    "delete of a custom object": lambda api: api.delete(WIDGET, expect=0),
    "create of a namespace": lambda api: api.post(
        "/api/v1/namespaces", {"metadata": {"name": f"{MARK}-other"}}, expect=0
    ),
    "delete of a namespace": lambda api: api.delete(SPACE, expect=0),
    "token": lambda api: api.post(f"{ACCOUNTS}/{NAME}/token", {"spec": {}}, expect=0),
    "deletecollection": lambda api: api.delete(f"{CONFIGMAPS}?labelSelector=in=one", expect=0),
}


#: The doors that delete, and that which stores nothing.
DELETIONS = ("delete", "delete of a custom object", "delete of a namespace", "deletecollection")
TOKEN = "token"


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Plugin:
    return Plugin(tmp_path_factory.mktemp("plug-in"))


@pytest.fixture(scope="module")
def with_plugin(plugin: Plugin, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """kcp-admin in `root` of a shard with the plug-in, in its workers and its writer."""
    directory = tmp_path_factory.mktemp("shard")
    flags = ("--workers", "2", "--egress-allow-cidr", "127.0.0.0/8")
    with ShardProcess(directory, *flags, environment=patched(directory, plugin.code)) as shard:
        yield Api(shard, "root")


@pytest.fixture(scope="module", params=[*REFUSERS, PLUGIN])
def refuser(request: pytest.FixtureRequest) -> Refuser:
    found: Refuser = REFUSERS[request.param]() if request.param in REFUSERS else request.getfixturevalue("plugin")
    return found


@pytest.fixture(scope="module")
def root(admin: Api, refuser: Refuser, request: pytest.FixtureRequest) -> Api:
    """kcp-admin in `root` of the shard of the package, or of that with the plug-in."""
    found: Api = request.getfixturevalue("with_plugin") if isinstance(refuser, Plugin) else admin
    return found


@pytest.fixture(scope="module")
def place(root: Api) -> Iterator[Api]:
    here = root.at(workspace_under(root, type_="universal"))
    define(here, crd("widgets"))
    yield here
    here.close()


@pytest.fixture(scope="module")
def guarded(place: Api, refuser: Refuser) -> Iterator[Api]:
    """A workspace with marked objects of before, in which every further write of them is refused."""
    make(place)
    with refuser.installed(place):
        yield place


def make(api: Api) -> None:
    api.post(CONFIGMAPS, configmap(NAME, labels={"in": "one"}))
    api.post(WIDGETS, widget(spec={"replicas": 1}))
    api.post("/api/v1/namespaces", {"metadata": {"name": f"{MARK}-ns"}})
    api.post(ACCOUNTS, {"metadata": {"name": NAME}})
    spec = {"request": certificate_request(), "signerName": "example.com/any", "usages": ["client auth"]}
    api.post(REQUESTS, {"metadata": {"name": NAME}, "spec": spec})


@pytest.mark.parametrize("write", WRITES)
def test_a_write_of_a_marked_object_is_refused(guarded: Api, refuser: Refuser, write: str) -> None:
    acts = refuser.deletions if write in DELETIONS else refuser.unstored or write != TOKEN
    # What does not refuse a deletion is not to see it happen: later doors need the object.
    answer = WRITES[write](guarded) if acts else rehearsed(guarded, write)
    assert refuser.refused(answer) == acts, f"{answer.code} {answer.body[:500]!r}"
    assert guarded.get(OBJECT).json.get("data", {}) == {}


def rehearsed(api: Api, write: str) -> Answer:
    """A write that nothing refuses, as a dry run."""
    paths = {"delete": OBJECT, "delete of a custom object": WIDGET, "delete of a namespace": SPACE}
    if write == TOKEN:
        return api.post(f"{ACCOUNTS}/{NAME}/token?dryRun=All", {"spec": {}})
    return api.delete(f"{paths.get(write, CONFIGMAPS)}?dryRun=All&labelSelector=in=one")


def test_other_objects_are_written(guarded: Api) -> None:
    guarded.post(CONFIGMAPS, configmap("harmless"))
    guarded.patch(f"{CONFIGMAPS}/harmless", {"data": {"a": "1"}})
    guarded.delete(f"{CONFIGMAPS}/harmless")


@pytest.mark.parametrize("kind", REFUSERS)
def test_workers_refuse_too(with_plugin: Api, kind: str) -> None:
    """Each request is answered by one of the workers, which plan and ask themselves."""
    here, refuser = with_plugin.at(workspace_under(with_plugin, type_="universal")), REFUSERS[kind]()
    with refuser.installed(here):
        for number in range(8):
            here.close()
            assert refuser.refused(here.post(CONFIGMAPS, configmap(f"{MARK}-{number}"), expect=0))
            here.post(CONFIGMAPS, configmap(f"harmless-{number}"))
    here.post(CONFIGMAPS, configmap(MARK))
    here.close()


@pytest.mark.parametrize("deletion", [False, True], ids=["orphans", "deletes"])
def test_the_plugin_sees_what_the_garbage_collector_does(with_plugin: Api, plugin: Plugin, deletion: bool) -> None:
    """Its deletions, and its releases of orphans."""
    here = with_plugin.at(workspace_under(with_plugin, type_="universal"))
    collect(here, plugin, "Background" if deletion else "Orphan")
    here.close()


@pytest.mark.parametrize("policy", ["Background", "Orphan"])
@pytest.mark.parametrize("kind", REFUSERS)
def test_what_the_garbage_collector_does_is_asked_about(api: Api, kind: str, policy: str) -> None:
    operation = "DELETE" if policy == "Background" else "UPDATE"
    refuser = REFUSERS[kind](operations=[operation]) if REFUSERS[kind].deletions else REFUSERS[kind]()
    collect(api, refuser, policy)


def collect(api: Api, refuser: Refuser, policy: str) -> None:
    """Delete an owner: what becomes of its dependents the refuser refuses for the marked one, until it is gone."""
    owner = api.post(CONFIGMAPS, configmap("owner")).json["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}
    for name in (f"{MARK}-owned", "unmarked-owned"):
        api.post(CONFIGMAPS, configmap(name, ownerReferences=[reference]))

    def is_owned(name: str) -> bool:
        found = api.get(f"{CONFIGMAPS}/{name}", expect=0)
        return found.code == 200 and "ownerReferences" in found.json["metadata"]

    acts = refuser.deletions or policy == "Orphan"
    with refuser.installed(api):
        api.delete(f"{CONFIGMAPS}/owner?propagationPolicy={policy}")
        eventually(lambda: not is_owned("unmarked-owned"), "the harmless dependent is collected")
        if acts:
            assert is_owned(f"{MARK}-owned")
    eventually(lambda: not is_owned(f"{MARK}-owned"), "it is tried again", 60.0)
