"""Identities from the client over the real proxy to a real shard: no request gets another identity by any means.

The attacks are those of published advisories; each is repeated with its guard removed, and must then succeed. The
topology is tested first: attacks by header prove nothing against a shard without a proxy.
"""

from __future__ import annotations

import contextlib
import http.client
import ssl
import time
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atoll.machinery.apiserver.authentication import assertion
from atoll.machinery.apiserver.authentication.assertion import AssertionSigner, signing_key
from atoll.machinery.meta.user import User
from atoll.machinery.process import pki
from atoll.machinery.process.private_files import Pair
from atoll.standalone.site.credentials import CLIENT_CA
from harness.clients.api import Api, configmap, eventually
from harness.clients.tenants import CONFIGMAPS, RBAC, REVIEW, REVIEWS, bind, user, whoami
from harness.oracles.proxy_audit import audited_requests
from harness.servers.mutant_shard import altered
from harness.servers.site import Endpoint, ServingProcess, Site

TENANCY = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
SEEN = f"{CONFIGMAPS}?watch=1&fieldSelector=metadata.name=seen"
POWER = {"X-Remote-User": "root", "X-Remote-Group": "system:masters"}
WARRANT = msgspec.json.encode({"user": "root", "groups": ["system:masters"]}).decode()


@pytest.fixture(scope="module")
def made(site: Site) -> str:
    """The path of a workspace on shard-1 that `tenant` administers and `bob` may enter."""
    parent = site.proxy.api("root")
    location = {"selector": {"matchLabels": {"name": "shard-1"}}}
    body = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "who"}}
    parent.post(TENANCY, {**body, "spec": {"type": {"name": "universal", "path": "root"}, "location": location}})
    found = site.proxy.api("root:who")
    eventually(lambda: found.send("GET", CONFIGMAPS).code == 200, "root:who served")
    bind(found, "cluster-admin", user("tenant"))
    bind(found, "system:kcp:workspace:access", user("bob"))
    assert site.proxy.api("root:who", "tenant").get(CONFIGMAPS).code == 200
    return found.cluster


@pytest.fixture
def here(site: Site, made: str) -> Api:
    """kcp-admin in that workspace, through the proxy."""
    return site.proxy.api(made)


def cluster_of(api: Api) -> str:
    found = api.get("/apis/core.kcp.io/v1alpha1/logicalclusters/cluster").json
    return str(found["metadata"]["annotations"]["kcp.io/cluster"])


def as_proxy(site: Site, shard: ServingProcess, cluster: str = "") -> Api:
    """Directly at a shard, with the proxy's own certificate."""
    pair = own_pair(site)
    return Api(Endpoint(shard.url, site.context(pair)), cluster, "")


def own_pair(site: Site) -> Pair:
    name = "proxy-front-proxy"
    return Pair(site.layout.certificate(name).read_bytes(), site.layout.key(name).read_bytes())


def assertion_of(site: Site, pair: Pair, who: User, cluster: str, clock: Any = time.time) -> dict[str, str]:
    return {"Atoll-Assertion": AssertionSigner(signing_key(pair.key), clock).assertion(who, cluster)}


def attempts(site: Site, cluster: str) -> list[dict[str, str]]:
    """Headers that would give masters' rights to any client, if they were trusted."""
    own = pki.make_client(pki.make_ca("mine"), "front-proxy")
    root = User("root", ("system:masters",))
    return [
        POWER,
        {"x_remote_user": "root", "x_remote_group": "system:masters"},
        {"X-Remote-Group": "system:masters"},
        {"X%2DRemote-User": "root", "X-Remote%2DGroup": "system:masters"},
        {**POWER, "X-Remote-Extra-Authorization.kcp.io%2Fwarrant": WARRANT},
        {"X-Remote-Extra-Authorization.kcp.io%2Fwarrant": WARRANT},
        {**POWER, "Connection": "X-Remote-User"},
        assertion_of(site, own, root, cluster),
        {"Atoll_Assertion": "a.b.c", **POWER},
    ]


def trial_of_headers(site: Site, made: str) -> None:
    """Check that no header gives a user further rights."""
    here = site.proxy.api(made)
    cluster, token = cluster_of(here), account_token(here, "walker")
    elsewhere = site.proxy.api("root:who", "stranger")
    for headers in attempts(site, cluster):
        for somebody in (site.proxy.api("root:who", ""), elsewhere):
            code = somebody.send("GET", CONFIGMAPS, headers=headers).code
            assert code == 403, (headers, code)
        assert site.proxy.api("root", "tenant").send("GET", "/api/v1/secrets", headers=headers).code == 403, headers
        account = site.proxy.with_token(token, "root:who")
        assert account.send("GET", CONFIGMAPS, headers=headers).code == 403, headers
        found = site.proxy.api("root:who", "tenant").send("POST", REVIEWS, REVIEW, headers=headers)
        assert found.code == 201, headers
        assert found.json["status"]["userInfo"]["username"] == "tenant", headers


def account_token(api: Api, name: str) -> str:
    """The token of a service account, which is created if missing."""
    api.send("POST", ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return str(api.post(f"{ACCOUNTS}/{name}/token", body).json["status"]["token"])


def test_the_topology_is_one_in_which_headers_would_count(site: Site, here: Api) -> None:
    with audited_requests(site) as told:
        here.get(CONFIGMAPS)
    assert told["shard-1"] == [("kcp-admin", f"/clusters/{cluster_of(here)}{CONFIGMAPS}")], "the proxy stands between"
    shard = site.shards["shard-1"]
    assert as_proxy(site, shard, cluster_of(here)).send("GET", CONFIGMAPS, headers=POWER).code == 200
    signed = assertion_of(site, own_pair(site), User("root", ("system:masters",)), cluster_of(here))
    assert as_proxy(site, shard, cluster_of(here)).send("GET", CONFIGMAPS, headers=signed).code == 200


def test_no_header_makes_anybody_of_a_client(site: Site, made: str) -> None:
    trial_of_headers(site, made)


@pytest.mark.long
def test_the_trial_of_headers_tells(site: Site, made: str, tmp_path: Path) -> None:
    code = "import atoll.machinery.apiserver.forwarded_identity as s; s.belongs = lambda name, dropped: False"
    with altered(site.proxy, tmp_path, code), pytest.raises(AssertionError):
        trial_of_headers(site, made)


def trial_of_groups(site: Site) -> None:
    """Check that privileged groups of certificates have no effect."""
    for group in ("system:masters", "system:kcp:logical-cluster-admin", "system:kcp:initializer:root:x"):
        found = whoami(site.proxy.api("root", "bold", group, "devs"))["status"]["userInfo"]
        assert found["groups"] == ["devs", "system:authenticated"], group
    assert site.proxy.api("system:admin", "shard-admin").send("GET", f"{RBAC}/clusterroles").code == 403


def test_groups_of_power_do_not_come_through_the_proxy(site: Site) -> None:
    trial_of_groups(site)


@pytest.mark.long
def test_the_trial_of_groups_tells(site: Site, tmp_path: Path) -> None:
    code = "import atoll.frontproxy.authentication as i; i._matches = lambda group, listed: False"
    with altered(site.proxy, tmp_path, code), pytest.raises(AssertionError):
        trial_of_groups(site)


def test_straight_at_a_shard_nobody_but_a_proxy_is_believed(site: Site, here: Api) -> None:
    cluster, root = cluster_of(here), User("root", ("system:masters",))
    pair = own_pair(site)
    stolen = assertion_of(site, pair, root, cluster)
    for shard in site.shards.values():
        for who in ("", "stranger", "tenant", "shard-admin"):
            user = shard.api(cluster, who)
            assert user.send("GET", CONFIGMAPS, headers=stolen).code == 401, (shard.name, who)
            plain = user.send("GET", CONFIGMAPS).code
            assert plain in {401, 403} or who in {"tenant", "shard-admin"}, (shard.name, who)
            assert user.send("GET", CONFIGMAPS, headers=POWER).code == plain, (shard.name, who)
        # Another proxy's certificate is not valid for this proxy's assertion.
        other = Api(Endpoint(shard.url, site.context(_second(site))), cluster, "")
        assert other.send("GET", CONFIGMAPS, headers=stolen).code == 401


def _second(site: Site) -> Pair:
    name = "proxy-shard-2"
    return Pair(site.layout.certificate(name).read_bytes(), site.layout.key(name).read_bytes())


def test_an_assertion_counts_for_its_cluster_its_time_and_alone(site: Site, here: Api) -> None:
    cluster, pair, root = cluster_of(here), own_pair(site), User("root", ("system:masters",))
    proxy = as_proxy(site, site.shards["shard-1"], cluster)
    good = assertion_of(site, pair, root, cluster)
    assert proxy.send("GET", CONFIGMAPS, headers=good).code == 200
    late = assertion.LIFE_S + 2 * assertion.SKEW_S
    cut = {"Atoll-Assertion": good["Atoll-Assertion"][:-1]}
    for headers in (
        assertion_of(site, pair, root, "root"),
        assertion_of(site, pair, root, ""),
        {**good, "X-Remote-User": "root"},
        assertion_of(site, pair, root, cluster, lambda: time.time() - late),
        {**good, "Connection": "Atoll-Assertion"},
        assertion_of(site, pair, root, cluster, lambda: time.time() + late),
        cut,
    ):
        assert proxy.send("GET", CONFIGMAPS, headers=headers).code == 401, headers
    assert proxy.send("GET", CONFIGMAPS, headers=good).code == 200


def test_who_impersonates_is_judged_by_the_shard_as_whom_the_proxy_knows(site: Site, here: Api) -> None:
    found = whoami(here, {"Impersonate-User": "bob"})["status"]["userInfo"]
    assert found["username"] == "bob"
    tenant = site.proxy.api("root:who", "tenant")
    assert whoami(tenant, {"Impersonate-User": "bob"})["status"]["userInfo"]["username"] == "bob"
    master = {"Impersonate-User": "bob", "Impersonate-Group": "system:masters"}
    assert tenant.send("POST", REVIEWS, REVIEW, headers=master).code == 403
    assert site.proxy.api("root:who", "stranger").send("POST", REVIEWS, REVIEW, headers=master).code == 403


def test_a_service_accounts_token_finds_its_workspace_and_ends_with_the_account(site: Site, here: Api) -> None:
    bind(here, "cluster-admin", {"kind": "ServiceAccount", "name": "bot", "namespace": "default"})
    token, cluster = account_token(here, "bot"), cluster_of(here)
    bot = site.proxy.with_token(token)
    with audited_requests(site) as told:
        assert bot.get(CONFIGMAPS).code == 200
    assert told == {
        "root": [],
        "shard-2": [],
        "shard-1": [("system:serviceaccount:default:bot", f"/clusters/{cluster}{CONFIGMAPS}")],
    }
    assert site.proxy.with_token(token, "root:who").get(CONFIGMAPS).code == 200
    # An invalid signature is rejected before any request to a shard.
    with audited_requests(site) as told:
        head, payload, signature = token.split(".")
        forged = f"{head}.{payload}.{signature[:-4]}AAAA"
        assert site.proxy.with_token(forged, "root:who").send("GET", CONFIGMAPS).code == 401
    assert not any(told.values())
    here.delete(f"{ACCOUNTS}/bot")
    assert bot.send("GET", CONFIGMAPS).code == 401
    assert site.proxy.with_token(token, "root:who").send("GET", CONFIGMAPS).code == 401


def _headers(said: dict[str, str], accept: str = "", more: dict[str, str] | None = None) -> dict[str, str]:
    return {**said, **(more or {})}


@pytest.mark.long
def test_a_watch_goes_on_when_the_assertion_it_began_with_is_over(site: Site, here: Api) -> None:
    """Directly at the shard, with an assertion that expires soon, so that the test does not wait half a minute."""
    cluster = cluster_of(here)
    proxy = as_proxy(site, site.shards["shard-1"], cluster)
    for left_s in (2.0, 8.0, 20.0):
        said = nearly_over(site, cluster, left_s)
        proxy.headers = partial(_headers, said)  # type: ignore[method-assign]
        # A slow machine gets an assertion with a longer life.
        if proxy.send("GET", CONFIGMAPS).code == 200:
            with contextlib.suppress(AssertionError), proxy.watch(SEEN) as events:
                eventually(lambda: proxy.send("GET", CONFIGMAPS).code == 401, "the assertion is over")
                here.post(CONFIGMAPS, configmap("seen"))
                assert events.next().object["metadata"]["name"] == "seen"
                return
    pytest.fail("no watch outlived its assertion")


def nearly_over(site: Site, cluster: str, left_s: float) -> dict[str, str]:
    """The proxy's assertion about tenant, shortly before it expires."""
    made_at = time.time() - assertion.LIFE_S - assertion.SKEW_S + left_s
    return assertion_of(site, own_pair(site), User("tenant", ("system:authenticated",)), cluster, lambda: made_at)


def test_a_certificate_of_nobody_known_does_not_get_in(site: Site) -> None:
    stranger = pki.make_client(pki.make_ca("atoll client CA"), "kcp-admin", ["system:kcp:admin"])
    with pytest.raises((ssl.SSLError, ConnectionError)):
        Api(Endpoint(site.proxy.url, site.context(stranger)), "root", "").get(CONFIGMAPS)


def test_who_an_authority_vouches_for_comes_and_goes_with_the_proxys_file(site: Site) -> None:
    file, later = site.layout.certificate(CLIENT_CA), pki.make_ca("later")
    before, pair = file.read_bytes(), pki.make_client(later, "late", ["system:kcp:admin"])
    late = Api(Endpoint(site.proxy.url, site.context(pair)), "root", "")

    def code() -> int:
        try:
            return late.send("GET", "/api").code
        except (ssl.SSLError, ConnectionError, http.client.HTTPException):
            return 0

    assert code() == 0
    try:
        file.write_bytes(before + later.certificate)
        eventually(lambda: code() == 200, "the authority is taken over")
    finally:
        file.write_bytes(before)
    # On the open connection, and on new ones.
    eventually(lambda: code() in {0, 401}, "the authority is gone")
    late.close()
    eventually(lambda: code() == 0, "nobody of it is let in")
