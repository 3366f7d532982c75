"""Shards that join a root shard: rows of root, their registration, and operation without root."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from atoll.machinery.kcp.sharding.shards import HEARTBEAT, Load, load_of
from atoll.machinery.meta.conditions import find
from harness.clients.api import Api, configmap, eventually
from harness.servers.site import ServingProcess, Site

IDENTITIES = "/api/v1/namespaces/default/configmaps/apiexport-identity-cache"
SHARDS = "/apis/core.kcp.io/v1alpha1/shards"
CLUSTER = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@contextlib.contextmanager
def stopped(*processes: ServingProcess) -> Iterator[None]:
    """The processes are stopped inside, and ready again afterwards."""
    for process in processes:
        process.stop()
    try:
        yield
    finally:
        for process in processes:
            process.start()


def shard_object(master: Api, name: str) -> dict[str, Any]:
    found: dict[str, Any] = master.get(f"{SHARDS}/{name}").json
    return found


def identities_of(shard: ServingProcess) -> tuple[dict[str, str], str]:
    """Data of root that a shard keeps: identities, and the uids derived from them."""
    found = shard.api("system:shard", "shard-admin").get(IDENTITIES).json
    return found["data"], found["metadata"]["annotations"]["internal.atoll.dev/installation"]


def test_every_shard_has_the_identities_of_roots_exports(site: Site, master: Api) -> None:
    exports = master.get("/apis/apis.kcp.io/v1alpha2/apiexports").json["items"]
    own = {item["metadata"]["name"]: item["status"]["identityHash"] for item in exports}
    assert len(own) >= 4
    said = {name: identities_of(shard) for name, shard in site.shards.items()}
    assert set(said) == {"root", "shard-1", "shard-2"}
    assert {tuple(sorted(hashes.items())) for hashes, _ in said.values()} == {tuple(sorted(own.items()))}
    assert len({installation for _, installation in said.values()}) == 1


def test_kinds_that_root_exports_are_one_kind_everywhere_and_no_other_object_shares_a_uid(site: Site) -> None:
    names: list[set[str]] = []
    uids: list[set[str]] = []
    for shard in site.shards.values():
        items = shard.api("system:bound-crds", "shard-admin").get(CRDS).json["items"]
        bound = [item for item in items if item["spec"]["group"].endswith("kcp.io")]
        names.append({item["metadata"]["name"] for item in bound})
        own = shard.api("system:shard", "shard-admin")
        found = [own.get(IDENTITIES).json, own.get(CLUSTER).json, *bound]
        uids.append({item["metadata"]["uid"] for item in found})
    assert names[0] == names[1] == names[2] != set()
    assert not uids[0] & uids[1]
    assert not uids[1] & uids[2]


def test_root_itself_lies_on_the_root_shard_alone(site: Site, master: Api) -> None:
    assert master.get(CLUSTER).json["status"]["phase"] == "Ready"
    for name in ("shard-1", "shard-2"):
        api = site.shards[name].api("system:admin", "shard-admin")
        own = {item["metadata"]["annotations"]["kcp.io/cluster"] for item in clusters_of(api)}
        assert own >= {"system:admin", "system:shard", "system:bound-crds", "system:system-crds"}
        assert "root" not in own


def clusters_of(api: Api) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = api.at("*").get("/apis/core.kcp.io/v1alpha1/logicalclusters").json["items"]
    return items


def test_shards_register_themselves_with_their_urls_and_their_name(site: Site, master: Api) -> None:
    found = {item["metadata"]["name"]: item for item in master.get(SHARDS).json["items"]}
    assert set(found) == set(site.shards)
    for name, shard in site.shards.items():
        assert found[name]["spec"] == {
            "baseURL": shard.url,
            "externalURL": site.proxy.url,
            "virtualWorkspaceURL": shard.url,
        }
        assert found[name]["metadata"]["labels"]["name"] == name


@pytest.mark.long
def test_a_shard_gives_signs_of_life_and_tells_what_it_holds(site: Site, master: Api) -> None:
    def beat(name: str) -> str:
        found = find((shard_object(master, name).get("status") or {}).get("conditions") or [], HEARTBEAT)
        return str(found["lastTransitionTime"]) if found is not None else ""

    first = {name: eventually(partial(beat, name), f"a heartbeat of {name}") for name in site.shards}
    for name in site.shards:
        eventually(partial(lambda name: beat(name) > first[name], name), f"another heartbeat of {name}")
        load = load_of(shard_object(master, name))
        assert load.objects > 50
        assert load.capacity_bytes > load.storage_bytes > 10_000


@pytest.mark.long
def test_a_load_that_grows_is_told(site: Site, master: Api) -> None:
    def load() -> Load:
        return load_of(shard_object(master, "shard-2"))

    before = eventually(lambda: (found := load()).objects and found, "a first load")
    own = site.shards["shard-2"].api("system:shard", "shard-admin")
    for number in range(before.objects // 4):
        own.post("/api/v1/namespaces/default/configmaps", configmap(f"load-{number}", {"text": "x" * 100}))
    eventually(lambda: load().objects >= before.objects * 1.2, "more objects")
    assert load().storage_bytes > before.storage_bytes
    assert load().workspaces == before.workspaces, "objects of the system's clusters are no workspaces"


@pytest.mark.long
def test_what_an_operator_says_of_a_shard_outlives_its_restart(site: Site, master: Api) -> None:
    patch = {
        "metadata": {
            "labels": {"region": "eu", "tier": "gold"},
            "annotations": {"experimental.core.kcp.io/unschedulable": "for repair"},
        }
    }
    taken_back: dict[str, Any] = {
        "metadata": {
            "labels": dict.fromkeys(("region", "tier")),
            "annotations": {"experimental.core.kcp.io/unschedulable": None},
        }
    }
    master.patch(f"{SHARDS}/shard-2", patch)
    try:
        site.shards["shard-2"].restart()
        registered_again(master, "shard-2")
        metadata = shard_object(master, "shard-2")["metadata"]
        assert metadata["labels"] == {"name": "shard-2", "region": "eu", "tier": "gold"}
        assert metadata["annotations"]["experimental.core.kcp.io/unschedulable"] == "for repair"
    finally:
        master.patch(f"{SHARDS}/shard-2", taken_back)


def registered_again(master: Api, name: str) -> None:
    """Return when the shard has written its object once more."""
    before = int(shard_object(master, name)["metadata"]["resourceVersion"])
    eventually(lambda: int(shard_object(master, name)["metadata"]["resourceVersion"]) > before, "a sign of life")


@pytest.mark.long
def test_a_shard_object_that_was_deleted_comes_back(site: Site, master: Api) -> None:
    before = shard_object(master, "shard-2")["metadata"]["uid"]
    master.delete(f"{SHARDS}/shard-2")

    def back() -> bool:
        answer = master.get(f"{SHARDS}/shard-2", expect=0)
        return answer.code == 200 and answer.json["metadata"]["uid"] != before

    eventually(back, "shard-2 registered again")


@pytest.mark.long
def test_a_shard_starts_again_and_serves_while_the_root_shard_is_gone(site: Site, admin: Api, master: Api) -> None:
    shard = site.shards["shard-1"]
    kept = identities_of(shard)
    with stopped(site.root):
        shard.restart()
        assert shard.get("/readyz") == (200, b"ok")
        assert identities_of(shard) == kept
        own = shard.api("system:shard", "shard-admin")
        own.post("/api/v1/namespaces/default/configmaps", configmap("while-root-is-gone"))
        shard.until(lambda: "shard heartbeat failed" in shard.log())
    admin.close()
    master.close()
    before = find(shard_object(master, "shard-1")["status"]["conditions"], HEARTBEAT)
    assert before is not None

    def beats() -> bool:
        now = find(shard_object(master, "shard-1")["status"]["conditions"], HEARTBEAT)
        return now is not None and now["lastTransitionTime"] > before["lastTransitionTime"]

    eventually(beats, "a sign of life after the root shard came back", 120.0)


@pytest.mark.parametrize("name", ["root", "shard-1"])
def test_nobody_comes_in_without_a_certificate_of_the_site(site: Site, name: str) -> None:
    shard = site.shards[name]
    anonymous = shard.api("system:shard", "").get(IDENTITIES, expect=0)
    assert anonymous.code == 403
    plain = shard.api("system:shard", "somebody").get(IDENTITIES, expect=0)
    assert plain.code == 403
    assert "somebody" in plain.message


def test_a_component_is_only_what_its_certificate_says(site: Site) -> None:
    """The identities between shards are no masters: the system's own clusters stay closed to them."""
    for user in ("logical-cluster-admin", "external-logical-cluster-admin", "kcp-admin"):
        assert site.shards["shard-1"].api("system:shard", user).get(IDENTITIES, expect=0).code == 403
