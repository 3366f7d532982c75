"""A site is upgraded from the version before this one, and back, one process after the other and under load.

Each order of shards, front proxies, cache server and event gateway is taken: to this version kind by kind, and back in
the same order, so that each kind of either version runs beside each other one. In every state workspaces, exports and
bindings are made across the shards. Nothing acknowledged is lost, no short request fails, and subscribers receive
everything once and in order.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from atoll.machinery.stream.credential_file import PLAIN, read_access
from atoll.machinery.stream.permissions import reader_permissions
from atoll.standalone.site import credentials
from atoll.standalone.site.credentials import CACHE_USER
from atoll.standalone.site.gateways import tenant_options
from atoll.standalone.site.layout import PROXY
from atoll.standalone.site.processes import ProcessSpec
from harness.clients.api import eventually
from harness.clients.exports import BINDINGS, an_object, bind, make_export, objects_path, schema
from harness.clients.site_operations import MAPS, made
from harness.clients.site_subscriber import READ, READER, SiteSubscriber
from harness.clients.site_traffic import Balancer, Watcher, Writer
from harness.oracles.site_convergence import converged
from harness.servers.cache_server_process import CacheProcess
from harness.servers.earlier_version import run_by, settings_of_earlier, unpacked
from harness.servers.in_process.cache_server import BASE
from harness.servers.site import ServingProcess, Site
from integration.views.test_apiexport import ENTER, give

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

GATEWAY = "event gateway"
ORDERS = tuple(itertools.permutations(("shards", "proxies", "cache server", GATEWAY)))
EXPORTS = "/shards/*/clusters/*/apis/apis.kcp.io/v1alpha2/apiexports"
CIRCLES = schema("circles")
PATIENCE_S = 120.0
SECOND = "proxy-1"


def second_proxy(site: Site, directory: Path) -> ServingProcess:
    """Another front proxy of the site, with a store and a NATS user of its own."""
    port, shards = site._ports.reserve(0), site.plan.shards
    public = credentials.public_keys(site.layout.pki, shards)
    user = credentials.reading_user(site.layout.pki, reader_permissions(SECOND, shards), SECOND, public, PLAIN)
    site.nats.configure([*site.nats.users, user], tenant_options(site.layout.pki, shards))
    changed = {
        "--secure-port": str(port),
        "--root-directory": str(directory),
        "--nats-credentials-file": str(site.layout.credential(SECOND)),
    }
    arguments = [each for each in site.proxy.command[3:] if each.partition("=")[0] not in changed]
    arguments += [f"{name}={value}" for name, value in changed.items()]
    return ServingProcess(site, ProcessSpec(f"{PROXY}-2", tuple(arguments), f"https://127.0.0.1:{port}"))


class Upgraded:
    """A site of two shards, two front proxies and a cache server, with clients at work on each shard."""

    def __init__(self, site: Site, second: ServingProcess, cache: CacheProcess, earlier: Path) -> None:
        self.site, self._cache, self._earlier = site, cache, earlier
        self._proxies = (site.proxy, second)
        self._away: set[str] = set()
        self._balancer = balancer = Balancer([proxy.endpoint("kcp-admin") for proxy in self._proxies])
        places = {shard: made(site, "root", shard)[0] for shard in site.shards}
        for path in places.values():
            api = second.api(path)
            eventually(partial(lambda api: api.send("GET", MAPS).code == 200, api), f"{path} is served", PATIENCE_S)
        self.writers = {shard: Writer(balancer, path, partial(self._is_away, shard)) for shard, path in places.items()}
        self.watchers = {
            shard: Watcher(balancer, path, partial(self._is_away, shard)) for shard, path in places.items()
        }
        self.subscribers = {shard: self._subscriber(path) for shard, path in places.items()}
        for watcher in self.watchers.values():
            watcher.once()
        for client in (*self.watchers.values(), *self.writers.values()):
            client.start()

    def _subscriber(self, path: str) -> SiteSubscriber:
        api = self.site.proxy.api(path)
        give(api, READER, ENTER, READ)
        found = SiteSubscriber(self.site, api, self.site.logs)
        asyncio.run(found.receive([]))
        return found

    def _is_away(self, shard: str) -> bool:
        return shard in self._away

    def replace(self, kind: str, services: Path | None) -> None:
        """Replace the processes of a kind, one after the other."""
        if kind == "cache server":
            run_by(services, self._cache)
            self._cache.stop()
            self._cache.start()
            asyncio.run(self._cache.ready())
            return
        if kind == GATEWAY:
            run_by(services, self.site.gateway)
            self.site.gateway.restart()
            return
        # A front proxy of the earlier version closes connections in their handshake when it ends.
        self._balancer.forgives = kind == "proxies" and services is None
        for process in self.site.shards.values() if kind == "shards" else self._proxies:
            run_by(services, process)
            self._away.add(process.name)
            process.restart()
            # Each front proxy finds out for itself that a shard is back.
            for proxy, writer in itertools.product(self._proxies, self.writers.values()):
                proxy.api(writer._path).get(f"{MAPS}?limit=1")
            self.load_goes_on()
            self._away.discard(process.name)
        self._balancer.forgives = False

    def load_goes_on(self) -> None:
        """Return once every writer was answered after this; fail if a client had a failure."""
        before = {writer: writer.done for writer in self.writers.values()}
        for writer, done in before.items():
            eventually(partial(lambda w, n: w.done > n + 2 or w.failures, writer, done), writer.name, PATIENCE_S)
        assert self.failures == []

    @property
    def failures(self) -> list[str]:
        return [each for client in (*self.writers.values(), *self.watchers.values()) for each in client.failures]

    def works_across(self) -> None:
        """Make a provider on one shard and a consumer on the other, in both directions."""
        for there, here in itertools.permutations(self.site.shards):
            name = f"shapes-{uuid.uuid4().hex[:6]}"
            path, cluster = made(self.site, "root", there)
            make_export(self.site.proxy.api(path), name, CIRCLES)
            consumer = self.site.proxy.api(made(self.site, "root", here)[0])
            bind(consumer, path, name)
            eventually(partial(self._creates, consumer.cluster), "its API is served", PATIENCE_S)
            assert consumer.get(f"{BINDINGS}/{name}").json["status"]["phase"] == "Bound"
            row = EXPORTS.replace("shards/*", f"shards/{there}").replace("clusters/*", f"clusters/{cluster}")
            asyncio.run(self._cache.until(f"{BASE}{row}/{name}", lambda answer: answer.code == 200))

    def all_reaches_subscribers(self) -> None:
        """Subscribers connect anew, and receive all that was acknowledged, once and in order."""
        for shard, subscriber in self.subscribers.items():
            asyncio.run(subscriber.receive(self.writers[shard].acknowledged.copy()))

    def _creates(self, path: str) -> bool:
        made_object = an_object(CIRCLES, f"c-{uuid.uuid4().hex[:6]}")
        return bool(self._proxies[1].api(path).send("POST", objects_path(CIRCLES), made_object).code == 201)

    def take(self, order: tuple[str, ...], services: Path | None) -> None:
        for kind in order:
            self.replace(kind, services)
            self.works_across()
            self.all_reaches_subscribers()
            self.load_goes_on()

    def stop(self) -> None:
        """Stop all clients; nothing acknowledged is missing, and every watch told of each once."""
        for writer in self.writers.values():
            writer.stop()
        for shard, writer in self.writers.items():
            wanted, seen = set(writer.acknowledged), self.watchers[shard].seen
            eventually(partial(lambda wanted, seen: wanted <= set(seen), wanted, seen), "all are told", PATIENCE_S)
            assert sorted(seen) == sorted(set(seen))
            items = json.loads(self.site.shards[shard].api(writer._path).get(MAPS).body)["items"]
            assert wanted <= {item["metadata"]["name"] for item in items}
        self.all_reaches_subscribers()
        for watcher in self.watchers.values():
            watcher.over.set()


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(tmp_path_factory.mktemp("earlier"))


@pytest.fixture(scope="module")
def upgraded(earlier: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upgraded]:
    directory = tmp_path_factory.mktemp("upgraded")
    site = Site(directory, shards=2)
    second = second_proxy(site, directory / "second-proxy")
    cache = CacheProcess(directory / "cache", read_access(site.nats.url, str(site.layout.credential(CACHE_USER))))
    serving = [*site.shards.values(), site.proxy, second, site.gateway]
    for process in serving:
        process.command = settings_of_earlier(process.command)
    run_by(earlier, *serving, cache)
    with site:
        second.start()
        site.gateway.start()
        try:
            with cache:
                asyncio.run(cache.ready())
                found = Upgraded(site, second, cache, earlier)
                yield found
                found.stop()
                assert found.failures == []
        finally:
            second.stop()


@pytest.mark.parametrize("order", ORDERS, ids=", ".join)
def test_in_this_order_nothing_is_lost_and_no_short_request_fails(
    upgraded: Upgraded, earlier: Path, order: tuple[str, ...]
) -> None:
    upgraded.take(order, None)
    upgraded.take(order, earlier)
    converged(upgraded.site)
