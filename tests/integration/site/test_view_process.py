"""`atoll virtual-workspaces` as a process of a site, behind the mapping of its front proxy."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from atoll.machinery.apiserver.authorization.groups import KCP_ADMIN
from atoll.machinery.meta.user import MASTERS
from atoll.standalone.site.credentials import CLIENT_CA
from harness.clients.api import Api, Object, eventually
from harness.clients.exports import PATIENCE_S, accepted, bind, cluster_of
from harness.clients.site_workspaces import on, ready, workspace
from harness.servers.mutant_shard import patched
from harness.servers.processes import atoll
from harness.servers.site import Site
from harness.servers.third_party_view import Certificates, ThirdParty
from harness.servers.virtual_workspaces import SQUADS_GROUP, OfSquads
from integration.views.test_third_party import RBAC, allow

pytestmark = pytest.mark.long

SQUADS = f"/apis/{SQUADS_GROUP}/v1/namespaces/default/squads"
TEAMS = f"/apis/{SQUADS_GROUP}/v1/namespaces/default/teams"
SILENT_USERS = 4
#: Every watch is reviewed every two seconds, by a new review.
BUSY = """
import atoll.virtualworkspace_sdk.permissions as permissions
import atoll.virtualworkspace_sdk.reviews as reviews
permissions.POLL_S, permissions.SWEEP_S, reviews.KEEP_S = 2.0, 2.0, 0.5
"""


class SiteProcess(ThirdParty):
    """The views of the README under `atoll virtual-workspaces`, with a client certificate of the site."""

    site: Site

    def kubeconfig(self, provider: Api) -> Object:
        pair = self.site.certificate("kcp-admin", KCP_ADMIN)
        for name, data in (("ca.crt", self.site.authority), ("me.crt", pair.certificate), ("me.key", pair.key)):
            (self.directory / name).write_bytes(data)
        self.command = [sys.executable, "-m", "atoll.cli", "virtual-workspaces", "--views=views:SQUADS,views:CLUBS"]
        self.command.append(f"--client-ca-file={self.site.layout.certificate(CLIENT_CA)}")
        server = f"{self.site.proxy.url}/clusters/{provider.cluster}"
        user = {"client-certificate": str(self.directory / "me.crt"), "client-key": str(self.directory / "me.key")}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "clusters": [
                {"name": "it", "cluster": {"server": server, "certificate-authority": str(self.directory / "ca.crt")}}
            ],
            "users": [{"name": "it", "user": user}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        }


class OfSite(OfSquads):
    """The provider in a site."""

    process: type[ThirdParty] = SiteProcess

    def on(self, shard: str) -> Api:
        """A new workspace on a shard that binds the API."""
        made = ready(self.admin, workspace(self.admin, selector=on(shard)))
        there = self.admin.at(f"root:{made['metadata']['name']}")
        bind(there, self.provider.cluster, "teams", [accepted(each) for each in self.claims])
        path = f"/services/squads/clusters/{made['spec']['cluster']}{SQUADS}"
        eventually(lambda: self.admin.at("").get(path, expect=0).code == 200, "the view answers", PATIENCE_S)
        return there


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OfSite]:
    directory = tmp_path_factory.mktemp("process")
    certificates = Certificates(directory / "certificates")
    with Site(directory, shards=3) as site:
        pair = site.certificate("shard-admin", MASTERS)
        for suffix, data in (("crt", pair.certificate), ("key", pair.key)):
            certificates.files[f"masters.{suffix}"] = directory / f"masters.{suffix}"
            certificates.files[f"masters.{suffix}"].write_bytes(data)
        SiteProcess.site = site
        made = OfSite(site.proxy.api("root"), certificates, directory / "view", patched(directory, BUSY))
        mapping = yaml.safe_load(site.layout.mapping.read_text())
        for name in OfSite.served:
            backend = {"path": f"/services/{name}/", "backend": made.view.url.partition("/services")[0]}
            client = {"proxy_client_cert": certificates["shard.crt"], "proxy_client_key": certificates["shard.key"]}
            mapping.insert(0, {**backend, "backend_server_ca": certificates["views.crt"], **client})
        site.layout.mapping.write_text(yaml.safe_dump(mapping, sort_keys=False))
        site.proxy.restart()
        yield made
        made.view.stop()


def squad(name: str) -> Object:
    body = {"apiVersion": f"{SQUADS_GROUP}/v1", "kind": "Squad", "metadata": {"name": name}}
    return {**body, "spec": {"motto": "win"}}


def is_served(views: OfSite, path: str, certificate: str, user: str = "") -> bool:
    """Whether the process serves a path."""
    sent = {"X-Remote-User": user} if user else {}
    return views.view.send("GET", path, certificate=certificate, **sent)[0] == 200


def through(views: OfSite, consumer: Api, user: str = "kcp-admin") -> Api:
    """A user at the view of a workspace, by the proxy."""
    api = SiteProcess.site.proxy.api("", user)
    api.prefix = f"/services/squads/clusters/{cluster_of(consumer)}"
    return api


@pytest.mark.parametrize("shard", ["root", "shard-1", "shard-2"])
def test_it_reads_and_writes_by_the_mapping_in_workspaces_of_every_shard(views: OfSite, shard: str) -> None:
    consumer = views.on(shard)
    made = through(views, consumer).post(SQUADS, squad("north")).json
    assert consumer.get(f"{TEAMS}/north").json["spec"]["colour"] == "win"
    assert through(views, consumer).get(f"{SQUADS}/north").json == made
    bob = through(views, consumer, "bob")
    bob.get(SQUADS, expect=403)
    bob.post(SQUADS, squad("south"), expect=403)
    assert through(views, consumer, "").get(SQUADS, expect=0).code in {401, 403}
    own = {"apiGroups": [SQUADS_GROUP], "resources": ["squads", "teams"], "verbs": ["create", "list"]}
    allow(consumer, "bob", own, {"nonResourceURLs": ["/"], "verbs": ["access"]})
    eventually(lambda: bob.get(SQUADS, expect=0).code == 200, "bob lists", PATIENCE_S)
    bob.post(SQUADS, squad("south"))
    assert consumer.get(f"{TEAMS}/south").json["metadata"]["managedFields"]


def test_its_health_is_open_and_its_metrics_are_for_masters(views: OfSite) -> None:
    for path in ("/livez", "/readyz"):
        eventually(partial(is_served, views, path, ""), path, PATIENCE_S)
    for certificate in ("", "shard"):
        assert views.view.send("GET", "/metrics", certificate=certificate)[0] == 403
    status, body = views.view.send("GET", "/metrics", certificate="masters")
    assert status == 200 and b"apiserver_request" in body


def test_a_shard_that_does_not_answer_delays_no_other_watch(views: OfSite) -> None:
    silent, other = views.on("shard-1"), views.on("shard-2")
    readable = {"apiGroups": [SQUADS_GROUP], "resources": ["squads"], "verbs": ["list", "watch"]}
    users = [f"silent-{number}" for number in range(SILENT_USERS)]
    for consumer, names in ((silent, users), (other, ["bob"])):
        path = f"/clusters/{cluster_of(consumer)}{SQUADS}"
        for name in names:
            allow(consumer, name, readable, {"nonResourceURLs": ["/"], "verbs": ["access"]})
            eventually(partial(is_served, views, f"/services/squads{path}", "shard", name), name, PATIENCE_S)
    with contextlib.ExitStack() as stack:
        for name in users:
            stack.enter_context(views.view.watch("squads", f"/clusters/{cluster_of(silent)}{SQUADS}", name))
        path = f"/clusters/{cluster_of(other)}{SQUADS}"
        response = stack.enter_context(views.view.watch("squads", path, "bob", timeout_s=20.0))
        frozen = SiteProcess.site.shards["shard-1"]
        frozen.freeze()
        try:
            other.delete(f"{RBAC}/clusterrolebindings/bob-2")
            assert response.read() == b""
        finally:
            frozen.thaw()


@pytest.mark.parametrize(
    ("views_setting", "said"),
    [("", "views must not be empty"), ("nothing:VIEW", "nothing:VIEW"), ("json:loads", "json:loads is no View")],
)
def test_what_it_cannot_serve_it_says_in_one_line(tmp_path: Path, views_setting: str, said: str) -> None:
    flags = ("export=e", "directory=d", "tls-cert-file=c", "tls-private-key-file=k", "requestheader-client-ca-file=r")
    done = atoll("virtual-workspaces", f"--views={views_setting}", *(f"--{flag}" for flag in flags))
    assert done.code == 1
    assert said in done.stderr and len(done.stderr.splitlines()) == 1
