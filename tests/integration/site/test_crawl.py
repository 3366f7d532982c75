"""Responses to users without rights on every path of every process of a site: the proxy and the shards.

kcp once mounted its cache server before authentication. So each process is asked for everything there is, by nobody, by
somebody with a name and no rights, and by who administers a workspace of his own; and the trial is held against
processes without their guard, to see that it tells. (A cache server: `integration/cacheserver`.)
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from harness.clients.api import Api, eventually
from harness.clients.tenants import bind, user
from harness.data.request_paths import CACHE, OPEN, PUBLIC, TO_THE_NAMED, everything, watchable
from harness.servers.mutant_shard import altered
from harness.servers.site import ServingProcess, Site
from harness.tiers import every, only

PEOPLE = ("", "nobody", "tenant")
#: Those of the default run: each person once.
DEFAULT = {("front-proxy", ""), ("shard-1", "nobody"), ("front-proxy", "tenant")}
#: Whose crawl goes where. Root is crawled by nobody and by one without rights in `integration/security/test_crawl`.
CRAWLS = [*((process, who) for process in ("front-proxy", "shard-1") for who in PEOPLE), ("root", "tenant")]
#: Below prefixes that are closed to all, each person asks for every third path: together they ask for all.
SHARE = len(PEOPLE)
#: Paths that the proxy's own checks permit to all, as kcp's do.
OWN_HEALTH = ("/livez/", "/readyz/")
TENANCY = "/apis/tenancy.kcp.io/v1alpha1/workspaces"


@pytest.fixture(scope="module")
def others(site: Site) -> str:
    """The path of a foreign workspace on shard-1; `tenant` administers another one on it."""
    parent = site.proxy.api("root")
    for name in ("crawled", "tenants"):
        location = {"selector": {"matchLabels": {"name": "shard-1"}}}
        body = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}}
        parent.post(TENANCY, {**body, "spec": {"type": {"name": "universal", "path": "root"}, "location": location}})
        _until_served(site.proxy.api(f"root:{name}"))
    bind(site.proxy.api("root:tenants"), "cluster-admin", user("tenant"))
    assert site.proxy.api("root:tenants", "tenant").get("/api/v1/secrets").json["items"] == []
    return "root:crawled"


def _until_served(api: Api) -> None:
    eventually(lambda: api.send("GET", "/api/v1/namespaces/default").code == 200, f"{api.cluster} served")


@pytest.fixture(scope="module")
def paths(site: Site) -> list[str]:
    found = sorted(set(everything(site.root.api("root"))))
    assert len(found) > 150, "the crawl found the API"
    return found


def crawl(unprivileged: Api, prefixes: Iterable[str], paths: Iterable[str]) -> dict[str, int]:
    """Responses other than 401 and 403."""
    seen: dict[str, int] = {}
    for prefix in prefixes:
        for path in paths:
            for url in (prefix + path, *([f"{prefix}{path}?watch=1"] if watchable(path) else [])):
                if path not in OPEN:
                    seen[url] = unprivileged.send("GET", url).code
    return {url: code for url, code in seen.items() if code not in {401, 403}}


#: Closed to all who have no rights.
CLOSED = (
    "/clusters/system:admin",
    "/clusters/system:shard",
    "/clusters/0nowhere0",
    "/clusters/*",
    "/clusters/root:nowhere",
)


def own_prefixes(who: str, others: str) -> list[str]:
    """Those under which responses may depend on the person. `root` is open to every authenticated user."""
    return ["", f"/clusters/{others}", *([] if who else ["/clusters/root"])]


def prefixes(who: str, others: str) -> list[str]:
    return [*own_prefixes(who, others), *CLOSED]


def allowed(who: str) -> tuple[str, ...]:
    return TO_THE_NAMED if who else PUBLIC


@pytest.mark.parametrize("share", [SHARE, pytest.param(1, marks=pytest.mark.long)], ids=["a share", "all"])
@pytest.mark.parametrize(
    ("process", "who"), only(DEFAULT, CRAWLS), ids=[f"{process}-{who or 'anonymous'}" for process, who in CRAWLS]
)
def test_who_may_do_nothing_gets_nothing_on_any_path(
    site: Site, paths: list[str], others: str, process: str, who: str, share: int
) -> None:
    at: ServingProcess = site.proxy if process == "front-proxy" else site.shards[process]
    unprivileged = at.api("", who)
    found = crawl(unprivileged, own_prefixes(who, others), paths)
    for number, prefix in enumerate(CLOSED, PEOPLE.index(who)):
        found |= crawl(unprivileged, [prefix], paths[number % share :: share])
    if process != "front-proxy":
        # A shard reports that a path is on another shard, as kcp's do; the proxy resolves it.
        found = {url: code for url, code in found.items() if code != 429 or not url.startswith(f"/clusters/{others}")}
    open_here = (*allowed(who), *(OWN_HEALTH if at is site.proxy else ()))
    assert [url for url in found if not url.startswith(open_here)] == [], found
    for path in OPEN:
        assert unprivileged.get(path).code == 200


@pytest.mark.parametrize("method", every(2, ["POST", "PUT", "DELETE", "PATCH"]))
def test_who_may_do_nothing_changes_nothing(site: Site, others: str, method: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
    for at in (site.proxy, site.root, site.shards["shard-1"]):
        for who in PEOPLE:
            unprivileged = at.api("", who)
            for prefix in prefixes(who, others):
                for path in ("/api/v1/namespaces/default/configmaps/x", TENANCY, "/version", *CACHE[4:12]):
                    code = unprivileged.send(method, prefix + path, body).code
                    assert code in {401, 403} or (code, at.name) == (429, "root"), (at.name, who, method, prefix + path)


def trial(at: ServingProcess, others: str, paths: list[str]) -> None:
    """A short anonymous crawl; without watches, which would not end if they were permitted."""
    unprivileged = at.api("", "")
    seen = {url: unprivileged.send("GET", url).code for path in paths for url in (path, f"/clusters/{others}{path}")}
    assert set(seen.values()) <= {401, 403}, seen


SHORT = ["/metrics", "/api/v1/secrets", "/apis/rbac.authorization.k8s.io/v1/clusterroles", "/openapi/v2"]


@pytest.mark.long
def test_the_trial_tells_of_a_shard(site: Site, others: str, tmp_path: Path) -> None:
    shard = site.shards["shard-1"]
    trial(shard, others, SHORT)
    open_door = (
        "import atoll.machinery.apiserver.serving.pipeline as p; p.RequestPipeline.authorize = lambda *given: None"
    )
    with altered(shard, tmp_path, open_door), pytest.raises(AssertionError):
        trial(shard, others, SHORT)
    eventually(lambda: site.proxy.api(others, "").send("GET", "/api").code == 403, "the proxy reaches it again")


@pytest.mark.long
def test_the_trial_tells_of_the_proxy(site: Site, others: str, tmp_path: Path) -> None:
    trial(site.proxy, others, SHORT)
    code = (
        "import atoll.frontproxy.endpoints as o\n"
        "async def check(*given): pass\n"
        "o.Endpoints._scraper = lambda *given: None\n"
        "o.Endpoints._authorize = check"
    )
    with altered(site.proxy, tmp_path, code), pytest.raises(AssertionError):
        trial(site.proxy, others, SHORT)
