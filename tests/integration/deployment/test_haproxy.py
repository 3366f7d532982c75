"""The load balancer `infra/haproxy/haproxy.cfg` before a site: what names a cluster by its id goes to its shard.

Long: HAProxy runs in a container. Skipped where no container engine can start.
"""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from atoll.machinery.process.pki import make_serving
from atoll.standalone.site import credentials
from atoll.standalone.site.layout import Ports
from harness.clients.api import Api, configmap, eventually
from harness.clients.exports import cluster_of
from harness.clients.site_workspaces import led_to, on, ready, workspace
from harness.environment import ROOT
from harness.servers.container_engine import ContainerEngine
from harness.servers.site import Endpoint, Site

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    # The engine's client leaves its sockets to the collector of garbage.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

CONFIGMAPS, ACCOUNTS = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/serviceaccounts"
REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


class Tenant(NamedTuple):
    """A workspace on a shard, by its path and by its id, and a token of an administrator in it."""

    path: str
    cluster: str
    token: str


class Balanced:
    """A site of two shards, and the balancer's ports: for certificates, for tokens, and one where nobody is."""

    def __init__(self, site: Site, map_file: Path, ports: Ports) -> None:
        self.site, self.map_file, self.tenant = site, map_file, Tenant("", "", "")
        self.certificates, self.tokens, self._unused = (ports.reserve(0) for _ in range(3))

    def configuration(self) -> str:
        """The shipped file, with the addresses of this site."""
        proxy, root, other = (url.removeprefix("https://") for url in self._urls)
        text = (ROOT / "infra/haproxy/haproxy.cfg").read_text()
        for there, here in {
            "10.0.0.11:6443": proxy,
            "10.0.0.12:6443": f"127.0.0.1:{self._unused}",
            "10.0.1.1:6443": root,
            "10.0.1.2:6443": other,
            # A container here may have fewer files open than that takes.
            "maxconn 20000": "maxconn 2000",
            "bind :6443": f"bind 127.0.0.1:{self.certificates}",
            "bind :6444": f"bind 127.0.0.1:{self.tokens}",
        }.items():
            assert there in text
            text = text.replace(there, here)
        return text

    @property
    def _urls(self) -> tuple[str, str, str]:
        return self.site.proxy.url, self.site.root.url, self.site.shards["shard-1"].url

    def with_certificate(self, cluster: str) -> Api:
        context = self.site.proxy.endpoint("kcp-admin").tls()
        return Api(Endpoint(f"https://127.0.0.1:{self.certificates}", context), cluster, "")

    def with_token(self, cluster: str) -> Api:
        endpoint = Endpoint(f"https://127.0.0.1:{self.tokens}", self.site.context())
        return Api(endpoint, cluster, "", self.tenant.token)


@pytest.fixture(scope="module")
def balanced(engine: ContainerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Balanced]:
    directory = tmp_path_factory.mktemp("balanced")
    run, etc, map_file = directory / "run", directory / "etc", directory / "run/atoll/clusters.map"
    map_file.parent.mkdir(parents=True)
    etc.mkdir()
    site = Site(directory, shards=2)
    site.proxy.command.append(f"--cluster-map-file={map_file}")
    with site, contextlib.closing(Ports("127.0.0.1")) as ports:
        found = Balanced(site, map_file, ports)
        serving = credentials.authorities(site.layout).serving
        pair = make_serving(serving, ["127.0.0.1"])
        (etc / "balancer.pem").write_bytes(pair.certificate + pair.key)
        (etc / "serving-ca.crt").write_bytes(serving.certificate)
        (etc / "haproxy.cfg").write_text(found.configuration())
        # The map is read at the start.
        found.tenant = tenant(found)
        command = ["haproxy", "-W", "-db", "-f", "/etc/atoll/haproxy.cfg"]
        with engine.container(engine.base(), command, {run: "/run", etc: "/etc/atoll"}):
            eventually(lambda: answers(found.with_certificate("root")), "the balancer leads to a proxy")
            yield found


def answers(api: Api) -> bool:
    try:
        return api.send("GET", CONFIGMAPS).code == 200
    except (OSError, http.client.HTTPException):
        return False


def tenant(found: Balanced) -> Tenant:
    """A workspace on the second shard, in the balancer's map."""
    root = found.site.proxy.api("root")
    path = f"root:{ready(root, workspace(root, selector=on('shard-1')))['metadata']['name']}"
    api = led_to(found.site.proxy.api(path))
    api.post(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot"}})
    api.post(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "bot"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "bot", "namespace": "default"}],
        },
    )
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    token = api.post(f"{ACCOUNTS}/bot/token", request).json["status"]["token"]
    cluster = cluster_of(api)

    def is_mapped() -> bool:
        return found.map_file.exists() and f"{cluster} shard-1\n" in found.map_file.read_text()

    eventually(is_mapped, "the map has the workspace")
    return Tenant(path, cluster, token)


def test_a_token_and_an_id_need_no_proxy(balanced: Balanced) -> None:
    straight = balanced.with_token(balanced.tenant.cluster)
    balanced.site.proxy.freeze()
    try:
        straight.post(CONFIGMAPS, configmap("straight"))
        assert straight.get(f"{CONFIGMAPS}/straight").json["metadata"]["name"] == "straight"
    finally:
        balanced.site.proxy.thaw()


def test_paths_and_certificates_go_through_the_proxies(balanced: Balanced) -> None:
    by_path = balanced.with_token(balanced.tenant.path)
    eventually(lambda: answers(by_path), "a proxy takes a path and a token")
    by_certificate = balanced.with_certificate(balanced.tenant.path)
    eventually(lambda: answers(by_certificate), "a proxy takes a certificate")


def test_nobody_names_himself_another_in_headers(balanced: Balanced) -> None:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    claimed = {"X-Remote-User": "kcp-admin", "X-Remote-Group": "system:masters", "X-Forwarded-For": "10.9.9.9"}
    straight = balanced.with_token(balanced.tenant.cluster)
    found = straight.send("POST", REVIEWS, review, headers=claimed, expect=201).json
    assert found["status"]["userInfo"]["username"] == "system:serviceaccount:default:bot"
    assert "system:masters" not in found["status"]["userInfo"]["groups"]
