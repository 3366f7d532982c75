"""A shard lost for good: what is left of it, who may say so, and what happens when it comes back."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from atoll.machinery.kcp.sharding.forgotten_stores import FORGOTTEN
from atoll.machinery.kcp.sharding.shards import STORE, UNSCHEDULABLE
from harness.clients.api import MERGE, Api, configmap, eventually
from harness.clients.exports import make_export, schema
from harness.clients.site_workspaces import (
    CLUSTER,
    WORKSPACES,
    condition,
    gone,
    led_to,
    marked,
    on,
    ready,
    shard_of,
    workspace,
)
from harness.servers.site import Site

pytestmark = pytest.mark.long

SHARDS = "/apis/core.kcp.io/v1alpha1/shards"
ROOT_SHARD = f"{SHARDS}/root"
LOST = "shard-1"
USER = "settler"
MAPS = "/api/v1/namespaces/default/configmaps"


class Forgotten(NamedTuple):
    """A site whose shard was killed and forgotten: a home and a workspace on it, that one's child on another
    shard, its Shard object before, and what was said."""

    site: Site
    home: dict[str, Any]
    child: dict[str, Any]
    shard: dict[str, Any]
    workspace: dict[str, Any]
    refused: subprocess.CompletedProcess[str]
    said: str


def forget(site: Site, word: str, name: str = LOST) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "atoll.cli.kubectl.atoll", "shard", "forget", name]
    command += ["--kubeconfig", str(site.kubeconfig)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run(command, input=word, text=True, capture_output=True, timeout=60, env=environment)  # noqa: PLW1510


def record(site: Site) -> list[dict[str, str]]:
    annotations = site.root.api("root", "shard-admin").get(ROOT_SHARD).json["metadata"]["annotations"]
    return list(json.loads(annotations.get(FORGOTTEN, "[]")))


@pytest.fixture(scope="module")
def forgotten(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forgotten]:
    with Site(tmp_path_factory.mktemp("forgotten"), shards=3) as site:
        admin = site.root.api("root")
        made = ready(admin, workspace(admin, selector=on(LOST)))
        provider = site.shards[LOST].api(made["spec"]["cluster"])
        provider.post(MAPS, configmap("held"))
        make_export(provider, "shapes", schema("circles"))
        child = ready(provider, workspace(provider, selector=on("shard-2")))
        site.shards["shard-2"].api(child["spec"]["cluster"]).post(MAPS, configmap("left"))
        shard = admin.get(f"{SHARDS}/{LOST}").json
        master, closed = site.root.api("root", "shard-admin"), {UNSCHEDULABLE: "a test"}
        with marked(master, "root", annotations=closed), marked(master, "shard-2", annotations=closed):
            home = eventually(lambda: home_of(site), "the home")
        site.shards[LOST].kill()
        refused = forget(site, "yes\n")
        assert record(site) == [] and admin.get(f"{SHARDS}/{LOST}").code == 200
        done = forget(site, f"{LOST}\n")
        assert done.returncode == 0, done.stderr
        yield Forgotten(site, home, child, shard, made, refused, done.stdout)


def home_of(site: Site) -> dict[str, Any] | None:
    answer = site.proxy.api("root", USER).send("GET", f"{WORKSPACES}/~")
    return dict(answer.json) if answer.code == 200 else None


def unfollowed(log: str) -> bool:
    """Whether a process dropped the rows of the lost shard."""
    return any("shard unfollowed" in line and LOST in line for line in log.splitlines())


def initialized(obj: dict[str, Any]) -> dict[str, Any]:
    return next(each for each in obj["status"]["conditions"] if each["type"] == "WorkspaceInitialized")


def test_nothing_happens_before_the_name_was_typed_and_the_plan_says_what_will(forgotten: Forgotten) -> None:
    assert forgotten.refused.returncode == 1 and "nothing was changed" in forgotten.refused.stderr
    store = forgotten.shard["metadata"]["annotations"][STORE]
    for text in (store, "  workspaces", "ShardLost", f"Type the name of the shard to go on: {LOST}"):
        assert text in forgotten.said
    assert [(each["shard"], each["store"]) for each in record(forgotten.site)] == [(LOST, store)]
    assert forgotten.site.root.api("root").get(f"{SHARDS}/{LOST}", expect=404)
    again = forget(forgotten.site, f"{LOST}\n")
    assert again.returncode == 1 and "is forgotten already" in again.stderr


def test_its_replicas_and_routes_go(forgotten: Forgotten) -> None:
    site, cluster = forgotten.site, forgotten.workspace["spec"]["cluster"]
    for process in (site.root, site.shards["shard-2"], site.proxy):
        process.until(lambda process=process: unfollowed(process.log()))  # type: ignore[misc]
    assert site.proxy.api(cluster).at_once().get(MAPS, expect=0).code in {403, 404, 503}


def test_what_it_contained_elsewhere_is_listed_says_so_and_can_be_deleted(forgotten: Forgotten) -> None:
    """The Workspace above is still there, so that the child has to learn of the loss by itself."""
    path = f"root:{forgotten.workspace['metadata']['name']}:{forgotten.child['metadata']['name']}"
    cluster = forgotten.child["spec"]["cluster"]
    assert f"  {path}, logical cluster {cluster} on shard shard-2" in forgotten.said
    inside = forgotten.site.shards["shard-2"].api(cluster)
    assert inside.get(f"{MAPS}/left").code == 200
    said = eventually(lambda: condition(inside.get(CLUSTER).json, "WorkspaceOwnerExists"), "it says so", 120.0)
    assert (said["status"], said["reason"]) == ("False", "ShardLost")
    assert inside.get(CLUSTER).json["spec"]["directlyDeletable"]
    inside.delete(CLUSTER)
    eventually(lambda: inside.send("GET", CLUSTER).code in {403, 404}, "it is gone", 120.0)


def test_its_workspaces_say_so_and_are_made_again_elsewhere(forgotten: Forgotten) -> None:
    admin, name = forgotten.site.root.api("root"), forgotten.workspace["metadata"]["name"]
    lost = ready(admin, name, "Unavailable")
    condition = initialized(lost)
    assert (condition["status"], condition["reason"]) == ("False", "ShardLost")
    assert LOST in condition["message"]
    admin.delete(f"{WORKSPACES}/{name}")
    gone(admin, name)
    workspace(admin, name=name)
    made = ready(admin, name)
    assert shard_of(made) in {"root", "shard-2"}
    led_to(forgotten.site.proxy.api(made["spec"]["cluster"])).post(MAPS, configmap("new"))


def test_its_homes_are_placed_again_at_the_next_use(forgotten: Forgotten) -> None:
    site, cluster = forgotten.site, forgotten.home["spec"]["cluster"]
    made = eventually(lambda: home_of(site), "a new home", 120.0)
    assert made["spec"]["cluster"] == cluster and made["metadata"]["uid"] != forgotten.home["metadata"]["uid"]
    mine = site.proxy.api(cluster, USER)
    eventually(lambda: mine.send("GET", MAPS).code == 200, "the new home is served", 120.0)
    assert shard_of(mine.get(CLUSTER).json) in {"root", "shard-2"}
    mine.post(MAPS, configmap("new"))


def test_the_record_is_the_operators_alone(forgotten: Forgotten) -> None:
    site, store = forgotten.site, forgotten.shard["metadata"]["annotations"][STORE]
    before = record(site)
    admin, tenant = site.root.api("root"), site.root.api("root", "tenant", "system:authenticated")
    for text in ("[]", json.dumps([{"shard": "shard-2", "store": "x", "at": "2026-01-01T00:00:00Z"}]), None):
        patch = {"metadata": {"annotations": {FORGOTTEN: text}}}
        assert admin.send("PATCH", ROOT_SHARD, patch, kind=MERGE).code == 200
        assert tenant.send("PATCH", ROOT_SHARD, patch, kind=MERGE).code == 403
        assert record(site) == before
    for api in (admin, site.root.api("root", "shard-admin")):
        refusal = api.send("DELETE", ROOT_SHARD)
        assert refusal.code == 403 and "forgotten" in refusal.json["message"]
    body = {**forgotten.shard, "metadata": {"name": "other", "annotations": {STORE: store}}}
    refusal = site.root.api("root", "shard-admin").send("POST", SHARDS, body)
    assert refusal.code == 403 and f"its store {store} was forgotten" in refusal.json["message"]


def test_a_comeback_ends_before_it_serves_and_a_new_store_is_a_new_shard(forgotten: Forgotten) -> None:
    site, shard = forgotten.site, forgotten.site.shards[LOST]
    served = shard.out_path.read_text().count("atoll serves")
    shard.spawn()
    eventually(lambda: not shard.running, "the process ends", 60.0)
    assert "was forgotten by the operator" in shard.log()
    assert shard.out_path.read_text().count("atoll serves") == served
    assert site.root.api("root").get(f"{SHARDS}/{LOST}", expect=404)
    shutil.rmtree(site.layout.shard(LOST) / "store")
    shard.start()
    admin = site.root.api("root")
    registered = eventually(lambda: found(admin), "the new store is registered", 60.0)
    assert registered["metadata"]["annotations"][STORE] != forgotten.shard["metadata"]["annotations"][STORE]
    made = ready(admin, workspace(admin, selector=on(LOST)))
    led_to(site.proxy.api(made["spec"]["cluster"])).post(MAPS, configmap("new"))
    assert ready(admin, made["metadata"]["name"])["spec"]["cluster"] == made["spec"]["cluster"]


def test_one_that_was_only_silent_ends_when_it_hears_of_it_and_needs_nobody_to_remember(forgotten: Forgotten) -> None:
    site, shard = forgotten.site, forgotten.site.shards["shard-2"]
    shard.freeze()
    assert forget(site, "shard-2\n", "shard-2").returncode == 0
    shard.thaw()
    eventually(lambda: not shard.running, "the process ends", 60.0)
    assert "was forgotten by the operator" in shard.log()
    site.root.stop()
    try:
        served = shard.out_path.read_text().count("atoll serves")
        shard.spawn()
        eventually(lambda: not shard.running, "the process ends again", 60.0)
        assert shard.out_path.read_text().count("atoll serves") == served
    finally:
        site.root.start()


def found(admin: Api) -> dict[str, Any] | None:
    answer = admin.get(f"{SHARDS}/{LOST}", expect=0)
    return dict(answer.json) if answer.code == 200 else None
