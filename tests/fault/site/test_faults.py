"""Parts of a site that die, freeze or lose what they had: what was lost fails clearly, all else goes on, and in the
end every shard holds what all others have. The tests share one site; each leaves it whole."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.stream.credential_file import read_access
from atoll.standalone.site.credentials import CACHE_USER
from harness.clients.api import MERGE, Api, configmap, eventually
from harness.clients.exports import (
    BINDINGS,
    EXPORTS,
    SCHEMAS,
    an_object,
    bind,
    binding,
    is_true,
    make_export,
    objects_path,
    resource_of,
    schema,
    unbind,
    wait,
)
from harness.clients.site_operations import (
    CIRCLES,
    MAPS,
    Tree,
    bound,
    down,
    frozen,
    grown,
    made,
    refused,
    restarted,
    served,
    works_alone,
)
from harness.clients.site_workspaces import WORKSPACES, gone, on, ready, workspace
from harness.oracles.site_convergence import converged, held, stores_of
from harness.servers.cache_server_process import CacheProcess
from harness.servers.in_process.cache_server import BASE
from harness.servers.site import Site, SiteProcess

#: A start takes seconds on a loaded machine, and some tests have several.
pytestmark = pytest.mark.timeout(600)
#: A later schema of circles, with one more field.
SHADED = schema("circles", prefix="later")
SHADED["spec"]["versions"][0]["schema"]["properties"]["spec"]["properties"]["shade"] = {
    "type": "string",
    "default": "dark",
}
CACHED_AT = f"{BASE}/shards/*/clusters/*/apis/tenancy.kcp.io/v1alpha1/workspaces"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("faults"), shards=3) as running:
        yield running


@pytest.fixture(scope="module")
def tree(site: Site) -> Tree:
    return grown(site)


@pytest.fixture
def admin(site: Site) -> Iterator[Api]:
    """kcp-admin in `root`, straight at the root shard."""
    api = site.root.api("root")
    yield api
    api.close()


# --- shards and proxies


def test_all_goes_on_without_the_root_shard(site: Site, tree: Tree) -> None:
    """Also for processes that start meanwhile: identities, types, rights and paths are on every shard's own disk."""
    provider = site.shards["shard-1"].api(tree.clusters[tree.org])
    make_export(provider, "shapes", CIRCLES)
    provider.close()
    consumer = site.shards["shard-2"].api(tree.clusters[tree.other])
    bound(consumer, tree.clusters[tree.org], "before")
    with down(site.root):
        restarted(site.shards["shard-1"], site.proxy)
        refused(site, "root")
        served(site, tree.org, tree.team, tree.other)
        works_alone(site, "shard-1", tree.clusters[tree.org], "rootless-1")
        works_alone(site, "shard-2", tree.clusters[tree.other], "rootless-2")
        consumer.delete(f"{BINDINGS}/before")
        bound(consumer, tree.clusters[tree.org], "rootless")
        nobody = site.shards["shard-2"].api(tree.clusters[tree.other], "mallory")
        with contextlib.closing(nobody):
            assert nobody.send("GET", MAPS).code == 403
        served(site, f"{tree.org}:rootless-1")
    consumer.close()
    served(site, "root", tree.org, f"{tree.other}:rootless-2")
    converged(site)


def test_only_the_workspaces_of_a_dead_shard_fail_and_deeper_paths_lead_past_it(
    site: Site, tree: Tree, admin: Api
) -> None:
    with down(site.shards["shard-1"]):
        refused(site, tree.org)
        served(site, "root", tree.team, tree.other)
        restarted(site.proxy)
        refused(site, tree.org)
        served(site, "root", tree.team, tree.other)
        works_alone(site, "shard-2", tree.clusters[tree.team], "orphan")
        ready(admin, workspace(admin, selector=on("shard-2")))
    served(site, tree.org, f"{tree.team}:orphan")
    converged(site)


def test_a_frozen_shard_holds_up_nobody_else(site: Site, tree: Tree, admin: Api) -> None:
    with frozen(site.shards["shard-1"]), contextlib.closing(hanging(site, tree.org)):
        served(site, "root", tree.team, tree.other)
        works_alone(site, "shard-2", tree.clusters[tree.team], "patient")
        ready(admin, workspace(admin, selector=on("root")))
    served(site, tree.org)
    converged(site)


@pytest.mark.long
@pytest.mark.parametrize("without", [down, frozen])
def test_consumers_bind_write_and_upgrade_without_the_exporters_shard(
    site: Site, without: Callable[[SiteProcess], contextlib.AbstractContextManager[None]]
) -> None:
    """The upgrade reaches the last consumer's shard only after the exporter's is silent."""
    (path, cluster), exporter, late = made(site, "root", "shard-1"), site.shards["shard-1"], site.shards["shard-2"]
    with contextlib.closing(exporter.api(cluster)) as provider, contextlib.ExitStack() as stack:
        make_export(provider, "shapes", CIRCLES)
        consumers = {shard: consumer(site, path, shard) for shard in ("root", "shard-2")}
        stack.callback(started, late)
        late.kill()
        provider.post(SCHEMAS, SHADED)
        provider.patch(f"{EXPORTS}/shapes", {"spec": {"resources": [resource_of(SHADED)]}})
        upgraded(consumers["root"], "at-root")
        stack.enter_context(without(exporter))
        late.start()
        upgraded(consumers["shard-2"], "at-shard-2")
        for shard in ("root", "shard-2"):
            fresh = consumer(site, path, shard)
            upgraded(fresh, "fresh")
            unbind(fresh, "shapes")
    served(site, path)
    converged(site)


def started(process: SiteProcess) -> None:
    if not process.running:
        process.start()


def consumer(site: Site, provider: str, shard: str) -> Api:
    """A workspace on a shard that binds the provider's export, straight at its shard."""
    _, cluster = made(site, "root", shard)
    api, dry = site.shards[shard].api(cluster), f"{BINDINGS}?dryRun=All"
    probe = binding(provider, "shapes", called="probe")
    # Admission finds the export once its shard's rows have arrived.
    eventually(lambda: api.post(dry, probe, expect=0).code == 201, f"known on {shard}")
    bind(api, provider, "shapes")
    return api


def upgraded(api: Api, name: str) -> None:
    """Return once circles are served by the later schema; one is written, read, changed and deleted."""

    def shaded() -> bool:
        found = api.post(f"{objects_path(CIRCLES)}?dryRun=All", an_object(SHADED, name, spec={}), expect=0)
        return found.code == 201 and found.json["spec"].get("shade") == "dark"

    eventually(shaded, f"{name}: the later schema")
    wait(api, f"{BINDINGS}/shapes", lambda obj: is_true(obj, "BindingUpToDate"))
    one = f"{objects_path(CIRCLES)}/{name}"
    api.post(objects_path(CIRCLES), an_object(SHADED, name, spec={}))
    api.patch(one, {"spec": {"shade": "light"}}, MERGE)
    assert api.get(one).json["spec"]["shade"] == "light"
    api.delete(one)


def hanging(site: Site, path: str) -> http.client.HTTPSConnection:
    """A request to a workspace whose shard hangs: it waits without an answer."""
    api = site.proxy.api(path)
    connection = api.open()
    connection.request("GET", api.prefix + MAPS, headers=api.headers())
    return connection


def test_a_watch_ends_with_its_proxy_and_goes_on_through_the_next_without_loss(site: Site, tree: Tree) -> None:
    direct = site.shards["shard-2"].api(tree.clusters[tree.team])
    client = site.proxy.api(tree.team)
    began = client.get(MAPS).json["metadata"]["resourceVersion"]
    connection = client.open()
    connection.request("GET", f"{client.prefix}{MAPS}?watch=1&resourceVersion={began}", headers=client.headers())
    response = connection.getresponse()
    direct.post(MAPS, configmap("seen"))
    assert b'"seen"' in response.readline()
    seen = direct.get(f"{MAPS}/seen").json["metadata"]["resourceVersion"]
    with down(site.proxy):
        with contextlib.suppress(OSError, http.client.HTTPException):
            assert response.readline() == b"", "the client hears that its watch is over"
        connection.close()
        for name in ("missed-1", "missed-2"):
            direct.post(MAPS, configmap(name))
        direct.delete(f"{MAPS}/missed-1")
    served(site, tree.team)
    with site.proxy.api(tree.team).watch(f"{MAPS}?watch=1&resourceVersion={seen}") as events:
        told: list[Any] = [(event.type, event.name) for event in events.take(3)]
    assert told == [("ADDED", "missed-1"), ("ADDED", "missed-2"), ("DELETED", "missed-1")]
    direct.close()
    client.close()


# --- NATS


def lives_on(site: Site, admin: Api, called: str) -> None:
    """Check operations of shards without replication: those on local rows, and direct calls."""
    for shard in site.shards:
        name = workspace(admin, name=f"{called}-{shard}", selector=on(shard))
        works_alone(site, shard, ready(admin, name)["spec"]["cluster"], called)
    admin.patch(f"{WORKSPACES}/{called}-root", {"metadata": {"labels": {"note": called}}}, MERGE)
    admin.delete(f"{WORKSPACES}/{called}-shard-1")


def caught_up(site: Site, admin: Api, called: str) -> None:
    """Wait until all shards hold the others' rows, and the proxy resolves every path."""
    gone(admin, f"{called}-shard-1")
    converged(site)
    for shard in ("root", "shard-2"):
        served(site, f"root:{called}-{shard}", f"root:{called}-{shard}:{called}")


@pytest.mark.long
def test_shards_and_proxies_start_without_nats_and_serve_what_they_know(site: Site, tree: Tree, admin: Api) -> None:
    converged(site)
    with down(site.nats):
        restarted(site.shards["shard-1"], site.proxy)
        served(site, "root", tree.org, tree.team)
        works_alone(site, "shard-1", tree.clusters[tree.org], "streamless")
        lives_on(site, admin, "down")
    caught_up(site, admin, "down")


def test_a_partition_from_nats_stops_nobody(site: Site, admin: Api) -> None:
    converged(site)
    with frozen(site.nats):
        lives_on(site, admin, "partition")
    caught_up(site, admin, "partition")


@pytest.mark.long
def test_streams_that_are_lost_are_filled_again_and_take_nothing_away(site: Site, tree: Tree, admin: Api) -> None:
    def members() -> set[object]:
        stores = stores_of(site)
        pairs = [(process, origin) for process in stores for origin in stores]
        return {(process, origin, key) for process, origin in pairs for key in held(stores[process], origin)}

    converged(site)
    with down(site.nats):
        before = members()
        site.nats.delete_store()
        lives_on(site, admin, "wiped")
        assert members() == before, "nothing is forgotten because nobody tells it any more"
    caught_up(site, admin, "wiped")


# --- cache server


@pytest.mark.long
async def test_shards_do_without_a_cache_server_and_it_takes_up_what_it_missed(
    site: Site, tree: Tree, admin: Api, tmp_path: Path
) -> None:
    access = read_access(site.nats.url, str(site.layout.credential(CACHE_USER)))
    with CacheProcess(tmp_path / "cache", access) as cache:
        await cache.ready()
        await cache.until(CACHED_AT, lambda answer: tree.org.encode().rpartition(b":")[2] in answer.body)
        cache.kill()
        made(site, "root", "shard-2", "uncached")
        works_alone(site, "shard-1", tree.clusters[tree.org], "uncached")
        converged(site)
        cache.start()
        await cache.until(CACHED_AT, lambda answer: b'"uncached"' in answer.body)
