"""Paths over three shards: published paths cost the proxy no request, an unknown path costs one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.clients.api import TIMEOUT_S, Answer, Api, eventually
from harness.clients.put_back import check_all_put_back
from harness.oracles.proxy_audit import audited_requests
from harness.servers.mutant_shard import altered
from harness.servers.site import Site, SiteProcess
from harness.tiers import only

TENANCY = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
CLUSTER = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
NAMESPACES = "/api/v1/namespaces"
ASKER = "system:kcp:front-proxy"


class Tree(NamedTuple):
    """`root` on shard root, `root:<org>` on shard-1, `root:<org>:team` on shard-2, `…:app` on root again."""

    org: str
    #: Clusters by path.
    clusters: dict[str, str]
    shards: dict[str, str]

    @property
    def team(self) -> str:
        return f"{self.org}:team"

    @property
    def app(self) -> str:
        return f"{self.team}:app"


def make(parent: Api, name: str, shard: str) -> dict[str, object]:
    """A Ready workspace on a shard."""
    location = {"selector": {"matchLabels": {"name": shard}}}
    body = {
        "apiVersion": "tenancy.kcp.io/v1alpha1",
        "kind": "Workspace",
        "metadata": {"name": name},
        "spec": {"type": {"name": "universal", "path": "root"}, "location": location},
    }
    parent.post(TENANCY, body)

    def ready() -> object:
        found = parent.get(f"{TENANCY}/{name}").json
        return found if found.get("status", {}).get("phase") == "Ready" else None

    found: dict[str, object] = eventually(ready, f"{parent.cluster}:{name} Ready")
    return found


@pytest.fixture(scope="module")
def tree(site: Site) -> Tree:
    org = "root:routes"
    clusters, shards, parent = {"root": "root"}, {"root": "root"}, "root"
    for name, shard in (("routes", "shard-1"), ("team", "shard-2"), ("app", "root")):
        found = make(site.proxy.api(parent), name, shard)
        path = f"{parent}:{name}"
        clusters[path] = found["spec"]["cluster"]  # type: ignore[index]
        shards[path] = found["metadata"]["annotations"]["core.kcp.io/shard"]  # type: ignore[index]
        eventually(
            partial(lambda path: site.proxy.api(path).send("GET", NAMESPACES).code == 200, path), f"{path} served"
        )
        parent = path
    # The proxy resolves it by replicated rows, without a lookup.
    eventually(lambda: _makes_no_lookups(site, *shards), "the tree arrived at the proxy")
    return Tree(org, clusters, shards)


def test_every_object_can_be_put_back_through_the_proxy(site: Site, tree: Tree) -> None:
    for path in (tree.org, tree.team):
        check_all_put_back(site.proxy.api(path), "workspaces", "logicalclusters", "clusterrolebindings")


def test_the_tree_spans_three_shards(site: Site, tree: Tree) -> None:
    assert [tree.shards[path] for path in ("root", tree.org, tree.team, tree.app)] == [
        "root",
        "shard-1",
        "shard-2",
        "root",
    ]
    for path, shard in tree.shards.items():
        for name, process in site.shards.items():
            found = process.api(tree.clusters[path], "shard-admin").send("GET", CLUSTER)
            assert found.code == (200 if name == shard else 404), (path, name, found.body)


def test_known_paths_ask_no_shard_anything_and_go_where_they_lead(site: Site, tree: Tree) -> None:
    site.proxy.restart()
    expected: dict[str, list[tuple[str, str]]] = {name: [] for name in site.shards}
    with audited_requests(site) as told:
        for path, shard in tree.shards.items():
            for name in (path, tree.clusters[path]):
                site.proxy.api(name).get(NAMESPACES)
                expected[shard].append(("kcp-admin", f"/clusters/{tree.clusters[path]}{NAMESPACES}"))
    assert told == expected, "one request each, at its own shard, and none besides"


@pytest.mark.parametrize(
    ("above", "shard", "more"),
    [("", "root", ""), ("routes", "shard-1", ""), ("routes", "shard-1", ":x:y"), ("routes:team", "shard-2", "")],
)
def test_an_unknown_path_asks_the_shard_of_its_deepest_ancestor_once(
    site: Site, tree: Tree, above: str, shard: str, more: str
) -> None:
    parent = f"root:{above}" if above else "root"
    name = f"none-{len(more)}"
    with audited_requests(site) as told:
        answer = site.proxy.api(f"{parent}:{name}{more}").send("GET", NAMESPACES)
    assert answer.code == 403
    asked = [(ASKER, f"/clusters/{tree.clusters[parent]}{TENANCY}/{name}")]
    assert told == {process: asked if process == shard else [] for process in site.shards}


def test_who_is_not_known_to_the_proxy_loads_one_shard_with_what_he_asks_and_no_more(site: Site, tree: Tree) -> None:
    with audited_requests(site) as told:
        answer = site.proxy.api(f"{tree.org}:none", "").send("GET", NAMESPACES)
    assert answer.code == 403
    target = f"/clusters/{tree.clusters[tree.org]}:none{NAMESPACES}"
    assert told == {"root": [], "shard-1": [("system:anonymous", target)], "shard-2": []}


@contextlib.contextmanager
def stopped(*processes: SiteProcess) -> Iterator[None]:
    for process in processes:
        process.stop()
    try:
        yield
    finally:
        for process in processes:
            process.start()


def test_what_lies_below_a_shard_that_is_down_is_served_and_what_lies_on_it_says_so(site: Site, tree: Tree) -> None:
    with stopped(site.shards["shard-1"]):
        for path in ("root", tree.team, tree.app):
            site.proxy.api(path).get(NAMESPACES)
        down = site.proxy.api(tree.org).get(NAMESPACES, expect=503)
        assert down.header("retry-after") == "1"
        none = site.proxy.api(f"{tree.org}:none").get(NAMESPACES, expect=503)
        assert (none.body, none.header("retry-after")) == (down.body, "1"), "nobody can say whether it is there"
    eventually(lambda: site.proxy.api(tree.org).send("GET", NAMESPACES).code == 200, "it is served again")


@pytest.mark.long
def test_what_was_made_while_the_stream_stands_still_is_found_by_one_question(
    site: Site, tree: Tree, tmp_path: Path
) -> None:
    # However long the lookup takes here: the test asserts no duration.
    patient = f"import atoll.frontproxy.path_fallback as m; m.DEADLINE_S = m.PRESENT_S = {TIMEOUT_S}"
    with stopped(site.nats), altered(site.proxy, tmp_path, patient):
        made = make(site.shards["shard-1"].api(tree.clusters[tree.org]), "late", "shard-1")
        cluster = made["spec"]["cluster"]  # type: ignore[index]
        late = site.proxy.api(f"{tree.org}:late")
        with audited_requests(site) as told:
            for _ in range(3):
                late.get(NAMESPACES)
        question = (ASKER, f"/clusters/{tree.clusters[tree.org]}{TENANCY}/late")
        served = ("kcp-admin", f"/clusters/{cluster}{NAMESPACES}")
        assert told == {"root": [], "shard-1": [question, served, served, served], "shard-2": []}
    eventually(lambda: _makes_no_lookups(site, f"{tree.org}:late"), "the workspace arrived at the proxy")


def _makes_no_lookups(site: Site, *paths: str) -> bool:
    """Whether a new proxy, whose cache is empty, resolves the path without a lookup."""
    site.proxy.restart()
    with audited_requests(site) as told:
        for path in paths:
            site.proxy.api(path).send("GET", NAMESPACES)
    return not any(user == ASKER for requests in told.values() for user, _ in requests)


def shape(answer: Answer, *said: str) -> tuple[int, str, list[tuple[str, str]]]:
    """An answer without parts of the request and values that differ each time; headers in their order."""
    body = answer.body.decode()
    for text in said:
        body = body.replace(text, "<it>")
    changing = {"audit-id", "date", "content-length"}
    headers = [(name, "" if name.lower() in changing else value) for name, value in answer.headers.items()]
    return answer.code, body, headers


HEALTH = ("/healthz", "/readyz", "/livez")
PATHS = (
    "",
    "/",
    "/api",
    "/apis",
    NAMESPACES,
    "/api/v1/namespaces/default/secrets/x",
    "/version",
    "/openapi/v3",
    "/nothing",
    "/metrics",
    f"{NAMESPACES}?watch=1",
    CLUSTER,
    "/apis/nothing.example.com/v1/things",
    "/api/v1/configmaps:abc",
    *HEALTH,
)
HEADERS: tuple[dict[str, str], ...] = (
    {},
    {"User-Agent": "curl/8"},
    {"Accept": "text/html"},
    {"Impersonate-User": "bob"},
    {"Impersonate-User": "bob", "Impersonate-Group": "system:masters"},
    {"Audit-Id": "mine"},
    {"Accept-Encoding": "gzip"},
)


ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


def account_token(api: Api) -> str:
    """The token of a service account of a workspace."""
    api.post(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"generateName": "walker-"}})
    name = api.get(ACCOUNTS).json["items"][-1]["metadata"]["name"]
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return str(api.post(f"{ACCOUNTS}/{name}/token", body).json["status"]["token"])


def is_forbidden(api: Api) -> bool:
    return api.send("GET", NAMESPACES).code == 403


@pytest.mark.parametrize("who", only({"certificate"}, ["anonymous", "certificate", "unknown token", "account"]))
def test_what_exists_and_what_does_not_cannot_be_told_apart(site: Site, tree: Tree, who: str) -> None:
    tokens = {"unknown token": "unheard-of"}
    if who == "account":
        tokens[who] = account_token(site.proxy.api(tree.app))

    def api(cluster: str) -> Api:
        if who in tokens:
            return site.proxy.with_token(tokens[who], cluster)
        return site.proxy.api(cluster, "stranger" if who == "certificate" else "")

    if who == "account":
        for cluster in (tree.org, tree.team):
            eventually(partial(is_forbidden, api(cluster)), "the account's shard is known there", 60.0)
    # `root` itself is open to every authenticated user.
    closed = (tree.org, tree.team) if who == "account" else (tree.org, tree.team, tree.app)
    there = [*closed, *(tree.clusters[path] for path in closed)]
    absent = ["root:none", f"{tree.org}:none", f"{tree.team}:none:x", "none:x", "0none0", "user:nobody"]
    for path in PATHS:
        for headers in HEADERS:
            if headers and path not in {NAMESPACES, "/api"}:
                continue
            shapes = {name: shape(api(name).send("GET", path, headers=headers), name) for name in (*there, *absent)}
            assert {str(found) for found in shapes.values()} == {str(shapes[tree.org])}, (path, headers)
            assert shapes[tree.org][0] == (200 if path in HEALTH else 401 if who == "unknown token" else 403)
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}
    for method in ("POST", "PUT", "PATCH", "DELETE", "HEAD"):
        sent = body if method != "HEAD" else None
        shapes = {name: shape(api(name).send(method, NAMESPACES, sent), name) for name in (*there, *absent)}
        assert {str(found) for found in shapes.values()} == {str(shapes[tree.org])}, method


def test_wildcards_are_refused_to_everybody(site: Site) -> None:
    for user in ("", "stranger", "kcp-admin", "shard-admin"):
        for path in ("/api", NAMESPACES, TENANCY, ""):
            answer = site.proxy.api("*", user).send("GET", path)
            assert answer.code == 403, (user, path)
            assert answer.message.endswith("workspace access not permitted"), (user, path)


def test_subscriptions_to_events_are_served_by_the_shard_of_their_workspace(site: Site, tree: Tree) -> None:
    """By path and by name; to who has no access there is no difference between a workspace and none."""
    admin, stranger = site.proxy.api(""), site.proxy.api("", "stranger")
    for path, cluster in tree.clusters.items():
        for named in (path, cluster):
            base = f"/services/events/clusters/{named}"
            assert admin.get(f"{base}/subscriptions").json == {"items": []}, (named, tree.shards[path])
            assert admin.post(f"{base}/token", {}).json["token"]
            admin.get(f"{base}/subscriptions/none", expect=404)
    denied = {
        (answer.code, answer.json["reason"])
        for named in (tree.org, tree.team, "root:nowhere")
        for answer in [stranger.get(f"/services/events/clusters/{named}/subscriptions", expect=403)]
    }
    assert denied == {(403, "Forbidden")}
