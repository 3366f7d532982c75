"""Shards of a site with API workers: what the front proxy and other shards ask of one is answered by its workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from harness.clients.api import Api, configmap, eventually
from harness.clients.changed_configurations import CHANGES, counts_everywhere
from harness.clients.exports import BINDINGS, an_object, bind, binding, make_export, objects_path, phase, schema
from harness.clients.followed_events import follow
from harness.clients.followed_events import path as follow_path
from harness.clients.site_workspaces import led_to, on, ready, workspace
from harness.clients.tenants import whoami
from harness.servers.processes import children, is_alive
from harness.servers.site import ServingProcess, Site
from harness.servers.stand_ins.oidc_issuer import Issuer
from harness.servers.subscribed_shard import path

pytestmark = pytest.mark.long

TENANCY = "/apis/tenancy.kcp.io/v1alpha1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
MAPS = "/api/v1/namespaces/default/configmaps"
CIRCLES = schema("circles")
HERE = objects_path(CIRCLES)
#: The system gives each connection to one of two workers.
CONNECTIONS = 6
OWN_AUDIENCE = "https://kcp.default.svc"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    flags: dict[str, object] = {"workers": 2, "egress_allow_cidr": "127.0.0.0/8"}
    with Site(tmp_path_factory.mktemp("workers"), shards=2, flags=flags) as running:
        yield running


@pytest.fixture(scope="module")
def admin(site: Site) -> Iterator[Api]:
    api = site.proxy.api("root")
    yield api
    api.close()


def workers(shard: ServingProcess) -> list[int]:
    return sorted(pid for pid, command in children(shard.pid).items() if "atoll.shard.worker" in command)


def place(site: Site, admin: Api, shard: str) -> Api:
    """kcp-admin in a new workspace of a shard, through the proxy."""
    return led_to(site.proxy.api(str(ready(admin, workspace(admin, selector=on(shard)))["spec"]["cluster"])))


def test_an_api_of_one_shard_is_bound_and_used_on_another(site: Site, admin: Api) -> None:
    assert [len(workers(shard)) for shard in site.shards.values()] == [2, 2]
    provider, consumer = place(site, admin, "root"), place(site, admin, "shard-1")
    make_export(provider, "shapes", CIRCLES)
    made = binding(provider.cluster, "shapes")
    eventually(lambda: consumer.send("POST", BINDINGS, made).code == 201, "the binding is let in")
    eventually(lambda: phase(consumer.get(f"{BINDINGS}/shapes").json) == "Bound", "it is bound")
    with consumer.watch(f"{HERE}?watch=1") as events:
        consumer.post(HERE, an_object(CIRCLES, "round"))
        assert events.next().name == "round"
    # The view of the provider's export at the consumer's shard.
    view = site.shards["shard-1"].api()
    view.prefix = f"/services/apiexport/{provider.cluster}/shapes/clusters"
    found = view.get(f"/*{objects_path(CIRCLES, namespace='')}").json["items"]
    assert [each["metadata"]["name"] for each in found] == ["round"]
    assert whoami(consumer)["status"]["userInfo"]["username"] == "kcp-admin"


@pytest.fixture(scope="module")
def provider_and_consumers(site: Site, admin: Api) -> Iterator[tuple[Api, list[Api]]]:
    """A provider, and of a consumer on each shard as many connections as make it sure that each worker has one."""
    provider = place(site, admin, "shard-1")
    make_export(provider, "shapes", CIRCLES)
    consumers: list[Api] = []
    for shard in site.shards:
        consumer = place(site, admin, shard)
        made, dry = binding(provider.cluster, "shapes"), f"{BINDINGS}?dryRun=All"
        eventually(lambda: consumer.send("POST", dry, made).code == 201, "the export is known", 60.0)  # noqa: B023
        bind(consumer, provider.cluster, "shapes")
        consumers += [site.shards[shard].api(consumer.cluster) for _ in range(CONNECTIONS)]
    yield provider, consumers
    for each in consumers:
        each.close()


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_what_a_provider_configures_counts_on_every_shard_and_worker(
    provider_and_consumers: tuple[Api, list[Api]], change: str
) -> None:
    counts_everywhere(CHANGES[change], *provider_and_consumers)


def test_a_worker_that_dies_costs_neither_writes_nor_the_shard(site: Site, admin: Api) -> None:
    api, shard = place(site, admin, "shard-1"), site.shards["shard-1"]
    before, writer = workers(shard), shard.pid
    for index in range(20):
        api.post(MAPS, configmap(f"kept-{index}"))
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not any(map(is_alive, before)), "the workers are dead")
    eventually(lambda: len(workers(shard)) == 2, "others take their place")

    def names() -> list[str]:
        answer = api.get(MAPS, expect=0)
        return [each["metadata"]["name"] for each in answer.json["items"]] if answer.code == 200 else []

    kept = eventually(names, "the shard answers")
    assert {f"kept-{index}" for index in range(20)} <= set(kept)
    assert shard.pid == writer
    eventually(lambda: api.send("POST", MAPS, configmap("after")).code == 201, "writes are taken")


def test_an_issuer_of_a_type_on_one_shard_makes_users_of_workspaces_on_another(site: Site, admin: Api) -> None:
    with Issuer() as issuer:
        home, cluster = _of_an_issuer(site, admin, issuer)
        token = issuer.token(sub="dora", aud=["tenant", OWN_AUDIENCE])
        for door in (site.proxy, site.shards["shard-1"]):
            api = door.with_token(token, cluster)
            eventually(lambda: api.get(MAPS, expect=0).code == 200, "the issuer's keys are fetched")  # noqa: B023
            assert whoami(api)["status"]["userInfo"]["username"] == "dora"
            forged = door.with_token(token[:-8] + "AAAAAAAA", cluster)
            eventually(lambda: forged.get(MAPS, expect=0).code == 401, "a forged token is refused")  # noqa: B023
        # A workspace of another type does not trust the issuer, though it knows a user of that name.
        for door in (site.proxy, site.root):
            assert door.with_token(token, home.cluster).get(MAPS, expect=0).code in {401, 403}
        home.delete(f"{TENANCY}/workspaceauthenticationconfigurations/own")
        for door in (site.proxy, site.shards["shard-1"]):
            api = door.with_token(token, cluster)
            eventually(lambda: api.get(MAPS, expect=0).code == 401, "the configuration is withdrawn")  # noqa: B023


def test_the_users_of_a_workspaces_own_issuer_subscribe_at_each_worker_and_through_the_proxy(
    site: Site, admin: Api
) -> None:
    with Issuer() as issuer:
        home, cluster = _of_an_issuer(site, admin, issuer)
        token = issuer.token(sub="dora", aud=["tenant", OWN_AUDIENCE])
        wanted = {"name": "audit", "resources": ["configmaps"]}
        for door in (site.proxy, site.shards["shard-1"]):
            for _ in range(CONNECTIONS):
                api = door.with_token(token)
                eventually(lambda: api.get(path(cluster), expect=0).code == 200, "keys are fetched")  # noqa: B023
                made = api.send("POST", path(cluster), wanted)
                assert (made.code in {200, 201}, made.json["cluster"]) == (True, cluster), made
                assert api.send("POST", path(home.cluster), wanted).code in {401, 403}
                with follow(api, follow_path(cluster, "configmaps")) as followed:
                    assert followed.next()["atolloperation"] == "BOOKMARK"
                api.close()


def _of_an_issuer(site: Site, admin: Api, issuer: Issuer) -> tuple[Api, str]:
    """A workspace, and one below it on another shard whose type trusts the issuer; dora administers both."""
    home = place(site, admin, "root")
    mappings = {"username": {"claim": "sub", "prefix": ""}}
    trusted = {"url": issuer.url, "audiences": ["tenant"], "certificateAuthority": issuer.ca_pem}
    jwt = {"jwt": [{"issuer": trusted, "claimMappings": mappings}]}
    _create(home, "workspaceauthenticationconfigurations", "WorkspaceAuthenticationConfiguration", "own", jwt)
    extend = {"with": [{"name": "universal", "path": "root"}]}
    named = {"extend": extend, "authenticationConfigurations": [{"name": "own"}]}
    _create(home, "workspacetypes", "WorkspaceType", "with-issuer", named)
    of_type = {
        "type": {"name": "with-issuer", "path": home.cluster},
        "location": {"selector": {"matchLabels": on("shard-1")}},
    }
    _create(home, "workspaces", "Workspace", "inside", of_type)
    cluster = str(ready(home, "inside")["spec"]["cluster"])
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "dora"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    given = {"metadata": {"name": "dora"}, "subjects": [subject], "roleRef": role}
    for inside in (site.proxy.api(cluster), site.proxy.api(home.cluster)):
        led_to(inside).post(f"{RBAC}/clusterrolebindings", given)
    return home, cluster


def _create(api: Api, plural: str, kind: str, name: str, spec: dict[str, Any]) -> None:
    body = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    api.post(f"{TENANCY}/{plural}", body)


def test_an_account_of_one_shard_calls_workers_of_another(site: Site, admin: Api) -> None:
    home, consumer = place(site, admin, "root"), place(site, admin, "shard-1")
    # A workspace in it is needed by nobody on the other shard.
    inner = led_to(site.proxy.api(str(ready(home, workspace(home, selector=on("root")))["spec"]["cluster"])))
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    inner.post(accounts, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot"}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = str(inner.post(f"{accounts}/bot/token", request).json["status"]["token"])
    for door in (site.proxy, site.shards["shard-1"]):
        bot = door.with_token(token, consumer.cluster)
        eventually(lambda: bot.get(MAPS, expect=0).code == 403, "it is somebody without rights")  # noqa: B023
