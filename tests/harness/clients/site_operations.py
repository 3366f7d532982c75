"""Operations of users in a site with broken parts: writes, bindings, new workspaces; and the errors that they get."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import NamedTuple

from harness.clients.api import Api, configmap, eventually
from harness.clients.exports import BINDINGS, an_object, binding, objects_path, phase, schema
from harness.clients.site_workspaces import led_to, on, ready, shard_of, workspace
from harness.servers.site import Site, SiteProcess

MAPS = "/api/v1/namespaces/default/configmaps"
CIRCLES = schema("circles")
#: Far above the promised durations, and below the timeout of a client.
AT_ONCE_S = 20.0


class Tree(NamedTuple):
    """`root:<org>` on shard-1, `root:<org>:team` and `root:<other>` on shard-2; clusters by path."""

    org: str
    team: str
    other: str
    clusters: dict[str, str]


def grown(site: Site) -> Tree:
    """A tree over all shards, served by the proxy."""
    org, in_org = made(site, "root", "shard-1")
    team, in_team = made(site, org, "shard-2")
    other, in_other = made(site, "root", "shard-2")
    return Tree(org, team, other, {org: in_org, team: in_team, other: in_other})


def made(site: Site, parent: str, shard: str, name: str = "") -> tuple[str, str]:
    """Path and cluster of a new workspace on a shard, once the proxy serves it."""
    api = site.proxy.api(parent)
    with contextlib.closing(api):
        name = workspace(api, name=name, selector=on(shard))
        found = ready(api, name)
    assert shard_of(found) == shard
    served(site, f"{parent}:{name}")
    return f"{parent}:{name}", found["spec"]["cluster"]


def served(site: Site, *paths: str) -> None:
    """Return once the proxy serves all of these."""
    for path in paths:
        api = site.proxy.api(path)
        with contextlib.closing(api):
            led_to(api)


def refused(site: Site, path: str) -> None:
    """Check that the proxy rejects requests to a workspace at once with a Kubernetes Status."""
    api, began = site.proxy.api(path).at_once(), time.monotonic()
    with contextlib.closing(api):
        answer = api.send("GET", MAPS)
    assert time.monotonic() - began < AT_ONCE_S
    assert (answer.code, answer.json["reason"], answer.header("retry-after")) == (503, "ServiceUnavailable", "1")


def bound(api: Api, provider: str, called: str) -> None:
    """Bind the provider's export of circles under a name, and use it."""
    api.post(BINDINGS, binding(provider, "shapes", called=called))
    eventually(lambda: phase(api.get(f"{BINDINGS}/{called}").json) == "Bound", f"{called} is bound")
    api.post(objects_path(CIRCLES), an_object(CIRCLES, called))


def works_alone(site: Site, shard: str, cluster: str, called: str) -> None:
    """Check that a shard accepts writes and new workspaces, which become Ready and accept writes."""
    api = site.shards[shard].api(cluster)
    with contextlib.closing(api):
        api.post(MAPS, configmap(called))
        child = ready(api, workspace(api, name=called, selector=on(shard)))
    below = site.shards[shard].api(child["spec"]["cluster"])
    with contextlib.closing(below):
        eventually(lambda: below.send("GET", MAPS).code == 200, f"{called} is served")
        below.post(MAPS, configmap(called))


def restarted(*processes: SiteProcess) -> None:
    """Stop and start these processes, in parallel."""
    for process in processes:
        process.stop()
        process.spawn()
    for process in processes:
        process.wait_ready()


@contextlib.contextmanager
def down(process: SiteProcess) -> Iterator[None]:
    """Kill the process inside the context, as a crash would, and start it again."""
    process.kill()
    try:
        yield
    finally:
        process.start()


@contextlib.contextmanager
def frozen(process: SiteProcess) -> Iterator[None]:
    """Freeze the process inside the context: it answers nothing, and its connections stay open."""
    process.freeze()
    try:
        yield
    finally:
        process.thaw()
