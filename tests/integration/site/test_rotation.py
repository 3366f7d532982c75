"""Certificates and keys of a running site are replaced, one kind after the other, while clients read, write and watch.

Nobody is restarted. Each kind of process says in its log when it has read its files again: that is what the steps wait
for. Requests go through the front proxy to workspaces on every shard, over kept and over new connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import signal
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from atoll.machinery.apiserver.authorization.groups import KCP_ADMIN
from atoll.machinery.process import pki
from atoll.machinery.process.private_files import Pair
from atoll.machinery.process.tls import client_context
from atoll.machinery.stream.connection import Access, Connection, Unavailable
from atoll.machinery.stream.credential_file import read_access
from atoll.machinery.stream.server.config import NatsUser
from atoll.standalone.site import credentials, runner
from atoll.standalone.site.credentials import CACHE_USER
from atoll.standalone.site.gateways import tenant_options
from atoll.standalone.site.layout import PROXY
from harness.clients.api import Events, configmap, eventually
from harness.clients.site_workspaces import on, ready, workspace
from harness.servers.processes import atoll
from harness.servers.site import ServingProcess, Site

pytestmark = pytest.mark.long

SECRETS = "/api/v1/namespaces/default/secrets"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
TIMEOUT_S = 60.0
#: Four times the ten seconds in which what is not trusted any more is refused: files are read again by then.
REFUSED_S = 40.0
#: What a proxy says of a user.
NAMED = {"x-remote-user": "kcp-admin", "x-remote-group": "system:kcp:admin"}


def opened(url: str, context: ssl.SSLContext | None) -> http.client.HTTPSConnection:
    parts = urlsplit(url)
    return http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=30, context=context)


class Files:
    """The files of a client, which reads them again for each new connection."""

    def __init__(self, site: Site, user: str) -> None:
        self._pki, self._user = site.layout.pki, user
        self._context: ssl.SSLContext | None = None
        self._read: tuple[bytes, ...] = ()

    def connection(self, url: str, kept: http.client.HTTPSConnection | None) -> http.client.HTTPSConnection:
        """`kept`, unless the files changed."""
        names = f"{self._user}.crt", f"{self._user}.key", f"{credentials.SERVING_CA}.crt"
        try:
            found = tuple((self._pki / name).read_bytes() for name in names)
        except FileNotFoundError:
            found = self._read
        if found != self._read or self._context is None:
            with contextlib.suppress(ssl.SSLError):  # A certificate and a key of which one is not written yet.
                self._context = client_context(found[2], Pair(found[0], found[1]))
                self._read = found
                if kept is not None:
                    kept.close()
                    kept = None
        if kept is not None:
            return kept
        return opened(url, self._context)


class Client(threading.Thread):
    """Writes and reads in one workspace until it is stopped; `failures` are all that did not succeed."""

    def __init__(self, site: Site, path: str, *, keeps: bool) -> None:
        super().__init__(name=f"{path} {'kept' if keeps else 'new'}", daemon=True)
        self._files, self._url, self._path = Files(site, "kcp-admin"), site.proxy.url, f"/clusters/{path}{CONFIGMAPS}"
        self._keeps, self._over = keeps, threading.Event()
        self.done = 0
        self.failures: list[str] = []

    def run(self) -> None:
        kept: http.client.HTTPSConnection | None = None
        while not self._over.is_set():
            kept = self._files.connection(self._url, kept)
            try:
                self._once(kept)
                self.done += 1
            except (OSError, http.client.HTTPException, AssertionError) as error:
                self.failures.append(f"{self.name}: {error!r}")
                kept.close()
                kept = None
            if not self._keeps and kept is not None:
                kept.close()
                kept = None
        if kept is not None:
            kept.close()

    def _once(self, connection: http.client.HTTPSConnection) -> None:
        name = f"{'kept' if self._keeps else 'new'}-{self.done}"
        for method, path, body, wanted in (
            ("POST", self._path, json.dumps(configmap(name)), 201),
            ("GET", f"{self._path}/{name}", None, 200),
            ("DELETE", f"{self._path}/{name}", None, 200),
        ):
            connection.request(method, path, body, {"content-type": "application/json"})
            response = connection.getresponse()
            text = response.read()
            assert response.status == wanted, (method, response.status, text[:300])

    def stop(self) -> None:
        self._over.set()
        self.join(TIMEOUT_S)


def said(process: ServingProcess, text: str, before: int) -> bool:
    return process.log().count(text) > before


def went_on(client: Client, done: int) -> bool:
    return client.done > done + 2 or bool(client.failures)


def answers(site: Site, path: str) -> bool:
    return bool(site.proxy.api(path).get(CONFIGMAPS, expect=0).code == 200)


class Rotation:
    """A site under load, and the steps that are taken in it."""

    def __init__(self, site: Site, places: dict[str, str], clients: list[Client]) -> None:
        self.site, self.places, self.clients = site, places, clients
        self.serving = [site.proxy, *site.shards.values()]

    def write(self) -> list[NatsUser]:
        """Make what is missing or due, as `atoll start --shards` and `atoll certs` do."""
        return runner.prepare(self.site.layout, self.site.plan, self.site._config.shard)

    def new_passwords(self) -> None:
        """Give all users of NATS new passwords, then reload the server."""
        credentials.renew_passwords(self.site.layout.pki)
        tenants = tenant_options(self.site.layout.pki, self.site.plan.shards)
        self.site.nats.configure(self.write(), tenants)
        os.kill(self.site.nats.pid, signal.SIGHUP)

    def renew(self, *pairs: str) -> None:
        for pair in pairs:
            self.site.layout.certificate(pair).unlink()
        self.write()

    def after(self, step: Callable[[], object], text: str, *names: str) -> None:
        """Take a step; return once all of these processes, by default all that serve, have said this once more."""
        processes = [each for each in self.serving if not names or each.name in names]
        before = {each.name: each.log().count(text) for each in processes}
        step()
        for each in processes:
            eventually(partial(said, each, text, before[each.name]), f"{each.name}: {text}", REFUSED_S)
        self.load_goes_on()

    def load_goes_on(self) -> None:
        """Return once every client has had answers after this; fail if one had a failure."""
        before = [client.done for client in self.clients]
        for client, count in zip(self.clients, before, strict=True):
            eventually(partial(went_on, client, count), "load", TIMEOUT_S)
        assert [failure for client in self.clients for failure in client.failures] == []

    def serial(self, url: str) -> int:
        parts = urlsplit(url)
        pem = ssl.get_server_certificate((parts.hostname or "", parts.port or 0)).encode()
        return Pair(pem, b"").x509.serial_number

    def prepare(self, name: str) -> None:
        credentials.signer(self.site.layout, name).prepare(lambda: credentials.make_authority(name))
        self.write()

    def promote(self, name: str) -> None:
        credentials.signer(self.site.layout, name).promote()
        self.write()

    def retire(self, name: str) -> None:
        assert credentials.signer(self.site.layout, name).retire() == 1
        self.write()

    def code(self, url: str, path: str, pair: Pair) -> int:
        """The status of a GET with a certificate; 0 if the handshake is refused."""
        trusted = self.site.layout.certificate(credentials.SERVING_CA).read_bytes()
        connection = opened(url, client_context(trusted, pair))
        try:
            connection.request("GET", path, headers=NAMED)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()


@pytest.fixture(scope="module")
def rotation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rotation]:
    with Site(tmp_path_factory.mktemp("rotation"), shards=3) as site:
        root = site.proxy.api("root")
        made = {shard: ready(root, workspace(root, selector=on(shard))) for shard in site.shards}
        places = {shard: f"root:{each['metadata']['name']}" for shard, each in made.items()}
        for path in places.values():
            eventually(partial(answers, site, path), path, TIMEOUT_S)
        clients = [Client(site, path, keeps=keeps) for path in places.values() for keeps in (True, False)]
        for client in clients:
            client.start()
        try:
            yield Rotation(site, places, clients)
        finally:
            for client in clients:
                client.stop()


def read_pair(directory: Path, name: str) -> Pair:
    found = pki.read_pair(directory, name)
    assert found is not None
    return found


def is_refused(access: Access) -> bool:
    """Whether NATS lets nobody in by an access."""

    async def opened() -> bool:
        try:
            await (await Connection.open(access, "test")).close()
        except Unavailable:
            return True
        return False

    return asyncio.run(opened())


def test_passwords_of_nats_sealing_keys_and_one_certificate_end_while_requests_go_on(rotation: Rotation) -> None:
    site, layout = rotation.site, rotation.site.layout
    rotation.load_goes_on()

    # One certificate, at the proxy and at every shard.
    eve = pki.make_client(credentials.authorities(layout).clients, "eve", [KCP_ADMIN])
    asked = [(site.shards[shard].url, path) for shard, path in rotation.places.items()]
    asked += [(site.proxy.url, path) for path in rotation.places.values()]
    assert [rotation.code(url, f"/clusters/{path}{CONFIGMAPS}", eve) for url, path in asked] == [200] * len(asked)
    cas = credentials.authorities(layout)
    rotation.after(lambda: credentials.revoke(layout, cas, [eve.certificate]), "client CAs reloaded")
    assert [rotation.code(url, f"/clusters/{path}{CONFIGMAPS}", eve) for url, path in asked] == [401] * len(asked)

    # The passwords of NATS: what is created afterwards is known everywhere, by the streams.
    given = read_access(site.nats.url, str(layout.credential(CACHE_USER)))
    earlier = msgspec.structs.replace(given, source=None)
    assert not is_refused(earlier)
    rotation.new_passwords()
    eventually(lambda: is_refused(earlier), "the earlier password is refused", REFUSED_S)
    assert not is_refused(given), "the file is read again"
    root = site.proxy.api("root")
    for shard in site.shards:
        made = ready(root, workspace(root, selector=on(shard)))
        path = f"root:{made['metadata']['name']}"
        eventually(partial(answers, site, path), path, TIMEOUT_S)
    rotation.load_goes_on()

    # The sealing key of every shard.
    for shard, path in rotation.places.items():
        here = site.proxy.api(path)
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "v"}}
        here.post(SECRETS, secret)
        flags = ("--root-directory", str(layout.shard(shard)), "--shard-name", shard, "--allow-any-filesystem")
        ran = atoll("rotate", *flags)
        assert (ran.code, "all objects are sealed with it" in ran.stdout) == (0, True), ran.stderr
        assert here.get(f"{SECRETS}/s").json["data"] == {"k": "dg=="}
    rotation.load_goes_on()
    assert not any("Traceback" in each.log() for each in rotation.serving)


def test_everything_is_replaced_while_requests_go_on_and_what_was_before_is_refused(rotation: Rotation) -> None:
    site, layout = rotation.site, rotation.site.layout
    shards = tuple(site.shards)
    client_says, cas_say = "client certificate reloaded", "client CAs reloaded"
    serving_says, keys_say = "serving certificate reloaded", "service account keys reloaded"
    with ExitStack() as stack:
        watches: dict[str, Events] = {
            path: stack.enter_context(site.proxy.api(path).watch(f"{CONFIGMAPS}?watch=1&labelSelector=end"))
            for path in rotation.places.values()
        }
        rotation.load_goes_on()

        # Serving certificates.
        serials = {each.name: rotation.serial(each.url) for each in rotation.serving}
        rotation.after(lambda: rotation.renew(*(f"serving-{each}" for each in serials)), serving_says)
        for each in rotation.serving:
            assert rotation.serial(each.url) != serials[each.name]

        # The certificate of the proxy, and those of shards for each other.
        rotation.after(lambda: rotation.renew(f"proxy-{PROXY}"), client_says, PROXY)
        rotation.after(lambda: rotation.renew(*(f"proxy-{each}" for each in shards)), client_says, *shards)
        rotation.after(lambda: rotation.renew("logical-cluster-admin"), client_says, *shards)

        # The authority of users and shards.
        admin = read_pair(layout.pki, "kcp-admin")
        rotation.after(lambda: rotation.prepare(credentials.CLIENT_CA), cas_say)
        rotation.after(lambda: rotation.promote(credentials.CLIENT_CA), client_says, *shards)
        assert read_pair(layout.pki, "kcp-admin") != admin
        path = rotation.places["root"]
        assert rotation.code(site.proxy.url, f"/clusters/{path}{CONFIGMAPS}", admin) == 200
        rotation.after(lambda: rotation.retire(credentials.CLIENT_CA), cas_say)
        for each in rotation.serving:
            assert rotation.code(each.url, f"/clusters/{path}{CONFIGMAPS}", admin) in {0, 401}

        # The authority of proxies.
        proxy = read_pair(layout.pki, f"proxy-{PROXY}")
        rotation.after(lambda: rotation.prepare(credentials.PROXY_CA), cas_say, *shards)
        rotation.after(lambda: rotation.promote(credentials.PROXY_CA), client_says, PROXY)
        assert rotation.code(site.root.url, f"/clusters/{path}{CONFIGMAPS}", proxy) == 200, "it may name users"
        rotation.after(lambda: rotation.retire(credentials.PROXY_CA), cas_say, *shards)
        for each in site.shards.values():
            assert rotation.code(each.url, f"/clusters/{path}{CONFIGMAPS}", proxy) in {0, 401}

        # The authority of servers.
        rotation.after(lambda: rotation.prepare(credentials.SERVING_CA), client_says)
        rotation.after(lambda: rotation.promote(credentials.SERVING_CA), serving_says)
        rotation.after(lambda: rotation.retire(credentials.SERVING_CA), client_says)

        # The key of service accounts.
        jwks = "/openid/v1/jwks"
        rotation.after(lambda: rotation.prepare(credentials.ACCOUNT_KEY), keys_say)
        admin = read_pair(layout.pki, "kcp-admin")
        rotation.after(lambda: rotation.promote(credentials.ACCOUNT_KEY), keys_say, *shards)
        assert rotation.code(site.root.url, jwks, admin) == 200
        rotation.after(lambda: rotation.retire(credentials.ACCOUNT_KEY), keys_say)

        for path, events in watches.items():
            with contextlib.closing(Files(site, "kcp-admin").connection(site.proxy.url, None)) as connection:
                body = json.dumps(configmap("end", labels={"end": "1"}))
                connection.request("POST", f"/clusters/{path}{CONFIGMAPS}", body, {"content-type": "application/json"})
                assert connection.getresponse().status == 201
            assert events.until("ADDED").name == "end", "watches from before go on"
    rotation.load_goes_on()
    assert not any("Traceback" in each.log() for each in rotation.serving)
