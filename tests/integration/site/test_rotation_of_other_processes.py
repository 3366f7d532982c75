"""Certificates and keys of an event gateway, a cache server and edge controllers are replaced while they are asked.

The steps are those of `test_rotation`; nobody is restarted. The edge controllers make a mailbox after each step that
concerns their kubeconfig.
"""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from atoll.edge.objects import service
from atoll.machinery.meta.names import ROOT
from atoll.machinery.meta.user import MASTERS
from atoll.machinery.process.listen_address import serving_names
from atoll.machinery.process.private_files import Pair
from atoll.machinery.process.tls import client_context
from atoll.machinery.stream.server.config import NatsUser
from atoll.standalone import edge_service
from atoll.standalone.edge_service import CONTROLLERS, edge_users
from atoll.standalone.site import credentials, process_files, runner
from atoll.standalone.site.credentials import ACCOUNT_KEY, CACHE_USER, CLIENT_CA, SERVING_CA
from atoll.standalone.site.layout import GATEWAY, PROXY
from atoll.standalone.site.processes import ProcessSpec
from harness.clients.api import Object, eventually
from harness.servers.edge_service import GROUP, an_object, edge_init
from harness.servers.site import ServingProcess, Site
from integration.site.test_rotation import Client, Files, Rotation, opened, read_pair, said

pytestmark = pytest.mark.long

CACHE, HOME = "cache-server", "root:espw"
TARGETS = f"/clusters/root:imw1{GROUP}/synctargets"
MAILBOXES = f"/clusters/{HOME}/apis/tenancy.kcp.io/v1alpha1/workspaces"
CACHED = "/services/cache/shards/*/clusters/*/apis/core.kcp.io/v1alpha1/shards"
TIMEOUT_S = 60.0
SERVING, CAS, CLIENT = "serving certificate reloaded", "client CAs reloaded", "client certificate reloaded"
KEYS = "service account keys reloaded"


class Reader(Client):
    """Asks one process for these paths, as an administrator of shards."""

    def __init__(self, site: Site, process: ServingProcess, paths: Sequence[str], *, keeps: bool) -> None:
        super().__init__(site, process.name, keeps=keeps)
        self._files, self._url, self._paths = Files(site, "shard-admin"), process.url, paths

    def _once(self, connection: http.client.HTTPSConnection) -> None:
        for path in self._paths:
            connection.request("GET", path)
            response = connection.getresponse()
            text = response.read()
            assert response.status == 200, (path, response.status, text[:300])


class World(Rotation):
    """The site with the three processes, which are asked all the time."""

    def __init__(self, site: Site, edge_kubeconfig: Path) -> None:
        self.site, self.edge_kubeconfig = site, edge_kubeconfig
        self.others = [site.gateway, self._cache(), self._edge()]
        super().__init__(site, {}, [])
        self.serving += self.others

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.others)

    def write(self) -> list[NatsUser]:
        layout, edge = self.site.layout, edge_users(1)
        users = runner.prepare(layout, self.site.plan, self.site._config.shard, edge)
        cas = credentials.authorities(layout)
        credentials.serving_pair(layout, cas, CACHE, serving_names("127.0.0.1"))
        credentials.client_pair(layout, cas, process_files.cache_user(CACHE), MASTERS)
        return users

    def _cache(self) -> ServingProcess:
        layout, port = self.site.layout, self.site._ports.reserve(0)
        files = process_files.cache_server_files(layout, CACHE, layout.credential(CACHE_USER))
        values = {**process_files.sources(files), "root_directory": layout.root / "cache", "secure_port": port}
        values |= {"nats_url": self.site.nats.url, "allow_any_filesystem": "true"}
        flags = tuple(f"--{name.replace('_', '-')}={value}" for name, value in values.items())
        return ServingProcess(self.site, ProcessSpec(CACHE, ("cache-server", *flags), f"https://127.0.0.1:{port}"))

    def _edge(self) -> ServingProcess:
        site, port = self.site, self.site._ports.reserve(0)
        files = runner._edge_files(site.layout, site.plan, site._config.shard, 1)
        files = files._replace(directory=self.edge_kubeconfig.parent)
        spec = edge_service.controllers_process(files, site.nats.url)
        arguments = (*spec.arguments, f"--secure-port={port}")
        return ServingProcess(site, ProcessSpec(CONTROLLERS, arguments, f"https://127.0.0.1:{port}"))

    def start(self) -> None:
        """Start the processes; ask them once they are ready."""
        self.write()
        self.init_edge()
        for each in self.others:
            each.spawn()
        for each in self.others:
            each.wait_ready()
        paths = {CACHE: ("/readyz", CACHED)}
        self.clients += [
            Reader(self.site, each, paths.get(each.name, ("/readyz", "/metrics")), keeps=keeps)
            for each in self.others
            for keeps in (True, False)
        ]
        for client in self.clients:
            client.start()

    def stop(self) -> None:
        for client in self.clients:
            client.stop()
        with contextlib.ExitStack() as stack:
            for each in self.others:
                stack.callback(each.stop)

    def init_edge(self) -> None:
        """Write the kubeconfig of the controllers again."""
        edge_init(self.site, self.edge_kubeconfig, "--espw-path", HOME, "--ensure-wmw", "")

    def ask(self, method: str, path: str, body: Object | None = None) -> tuple[int, Object]:
        """A request of an administrator to the front proxy, with the files as they are now."""
        with contextlib.closing(Files(self.site, "kcp-admin").connection(self.site.proxy.url, None)) as connection:
            data = json.dumps(body) if body is not None else None
            connection.request(method, path, data, {"content-type": "application/json"})
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def clients_ca(self, step: Callable[[str], None]) -> None:
        """Take a step with the authority of clients; return once all processes trust what they are to trust then."""
        cache = next(each for each in self.others if each.name == CACHE)
        before = cache.log().count(CAS)
        self.after(lambda: step(CLIENT_CA), SERVING, GATEWAY, CONTROLLERS)
        eventually(lambda: said(cache, CAS, before), "the cache server trusts it", TIMEOUT_S)

    def edge_works(self, name: str) -> None:
        """Return once the controllers made a mailbox for a new SyncTarget."""
        eventually(lambda: self.ask("GET", TARGETS)[0] == 200, "the inventory is there", TIMEOUT_S)
        assert self.ask("POST", TARGETS, an_object("SyncTarget", name, id=name))[0] == 201

        def has_mailbox() -> bool:
            found = self.ask("GET", MAILBOXES)[1]["items"]
            notes = [each["metadata"].get("annotations", {}) for each in found]
            return any(each.get("edge.kubestellar.io/sync-target-name") == name for each in notes)

        eventually(has_mailbox, f"a mailbox for {name}", TIMEOUT_S)

    def shows_metrics(self, process: ServingProcess, trusted: bytes, pair: Pair) -> bool:
        """Whether a process shows a client with this authority and certificate what administrators may see."""
        with contextlib.closing(opened(process.url, client_context(trusted, pair))) as connection:
            try:
                connection.request("GET", "/metrics")
                return connection.getresponse().status == 200
            except (OSError, http.client.HTTPException):
                return False


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with Site(tmp_path, shards=1, flags={"edge": True}) as site:
        found = World(site, tmp_path / "edge" / "kubeconfig")
        try:
            found.start()
            yield found
        finally:
            found.stop()


def tokens_of(kubeconfig: Path) -> set[str]:
    return {each["user"]["token"] for each in yaml.safe_load(kubeconfig.read_bytes())["users"]}


def test_everything_of_gateway_cache_server_and_edge_controllers_is_replaced_while_they_are_asked(world: World) -> None:
    layout = world.site.layout
    authority = layout.certificate(SERVING_CA)
    world.load_goes_on()
    world.edge_works("first")

    # Serving certificates, and the one by which the cache server asks shards.
    serials = [world.serial(each.url) for each in world.others]
    world.after(lambda: world.renew(*(f"serving-{each}" for each in world.names)), SERVING, *world.names)
    assert not set(serials) & {world.serial(each.url) for each in world.others}
    world.after(lambda: world.renew(process_files.cache_user(CACHE)), CLIENT, CACHE)

    # The authority of clients.
    before, trusted = read_pair(layout.pki, "shard-admin"), authority.read_bytes()
    assert all(world.shows_metrics(each, trusted, before) for each in world.others)
    world.clients_ca(world.prepare)
    world.after(lambda: world.promote(CLIENT_CA), CLIENT, CACHE)
    world.clients_ca(world.retire)
    assert read_pair(layout.pki, "shard-admin") != before

    def refused() -> bool:
        return not any(world.shows_metrics(each, trusted, before) for each in world.others)

    eventually(refused, "certificates of the earlier authority are refused", TIMEOUT_S)
    world.load_goes_on()

    # The authority of servers: the kubeconfig of the controllers is written again after each step.
    world.after(lambda: world.prepare(SERVING_CA), CLIENT, CACHE)
    world.after(world.init_edge, CLIENT, CONTROLLERS)
    world.after(lambda: world.promote(SERVING_CA), SERVING)
    world.after(lambda: world.retire(SERVING_CA), CLIENT, CACHE)
    world.after(world.init_edge, CLIENT, CONTROLLERS)
    admin = read_pair(layout.pki, "shard-admin")
    assert not any(world.shows_metrics(each, trusted, admin) for each in world.others), (
        "others signed their certificates"
    )
    assert all(world.shows_metrics(each, authority.read_bytes(), admin) for each in world.others)
    world.edge_works("second")

    # The key of service accounts, and the controllers' tokens.
    verifiers = ROOT, PROXY, GATEWAY
    tokens = tokens_of(world.edge_kubeconfig)
    world.after(lambda: world.prepare(ACCOUNT_KEY), KEYS, *verifiers)
    world.after(lambda: world.promote(ACCOUNT_KEY), KEYS, ROOT)
    for account in service().accounts:
        path = f"/clusters/{HOME}/api/v1/namespaces/{service().namespace}/secrets/{account}"
        assert world.ask("DELETE", path)[0] == 200
    world.after(world.init_edge, CLIENT, CONTROLLERS)
    assert not tokens & tokens_of(world.edge_kubeconfig)
    world.after(lambda: world.retire(ACCOUNT_KEY), KEYS, *verifiers)
    world.edge_works("third")
    world.load_goes_on()
    assert not any("Traceback" in each.log() for each in world.serving)
