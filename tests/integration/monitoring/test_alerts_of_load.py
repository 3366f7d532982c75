"""Alerts of a site under load and attack: writes that wait, controllers that are refused, streams that others touch."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from atoll.machinery.apiserver.serving.in_flight import MAX_TASKS
from atoll.machinery.stream.connection import Connection
from atoll.machinery.stream.credential_file import read_access
from atoll.machinery.stream.events import Operation
from atoll.machinery.stream.permissions import shard_user
from atoll.machinery.stream.publisher.log_events import control
from atoll.machinery.stream.subjects import KINDS
from atoll.standalone.site.credentials import credential_path
from harness.clients.api import Object, configmap, eventually
from harness.models.forged_events import forged, inject
from harness.servers.site import ServingProcess, Site
from harness.servers.stand_ins.admission import AdmissionServer, allow, configurations, deny, register
from integration.monitoring.scraped import GROUPS, MAPS, WAIT_S, fires, scrape, value

pytestmark = pytest.mark.long

HOOKS = f"{configurations('Validating')}/hooks"
SELECTED = {"held": "yes"}
#: Clients that find no place, beside those that have one.
TURNED_AWAY = 8


class Stranger(NamedTuple):
    """Who writes into a shard's stream in its name."""

    shard: str
    shard_uid: str = "a-stranger"
    lineage: str = "ffffffffffffffff"
    epoch: int = 1


class Writer:
    """A client that writes an object again and again, as soon as it has an answer."""

    def __init__(self, process: ServingProcess, path: str) -> None:
        self._address, self._context = urlsplit(process.url), process.endpoint("shard-admin").tls()
        self._path = path

    async def connect(self) -> None:
        host, port = self._address.hostname, self._address.port
        self._reader, self._writer = await asyncio.open_connection(host, port, ssl=self._context)

    async def run(self, name: str) -> None:
        body = json.dumps(configmap(name, labels=SELECTED)).encode()
        fields = f"Host: a\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        while True:
            self._writer.write(f"POST {self._path} HTTP/1.1\r\n{fields}\r\n\r\n".encode() + body)
            answer = await self._reader.readuntil(b"\r\n\r\n")
            (length,) = re.findall(rb"content-length: (\d+)", answer.lower())
            await self._reader.readexactly(int(length))

    def close(self) -> None:
        self._writer.transport.abort()


@contextlib.asynccontextmanager
async def insisting(process: ServingProcess, path: str, count: int) -> AsyncIterator[None]:
    """Run so many of them."""
    writers = [Writer(process, path) for _ in range(count)]
    for each in writers:
        await each.connect()
    running = [asyncio.create_task(each.run(f"w{number}")) for number, each in enumerate(writers)]
    yield
    for task in running:
        task.cancel()
    found = await asyncio.gather(*running, return_exceptions=True)
    assert {type(each) for each in found} == {asyncio.CancelledError}
    for writer in writers:
        writer.close()


def refusals(process: ServingProcess) -> float:
    """How many requests a process turned away."""
    lines = [line for line in scrape(process).splitlines() if line.startswith("apiserver_request_total{")]
    return sum(float(line.split()[-1]) for line in lines if 'code="429"' in line)


@pytest.fixture
def holding() -> Iterator[AdmissionServer]:
    """A webhook that answers once the test is over."""
    over = threading.Event()

    def held(review: Object) -> Object:
        over.wait(WAIT_S)
        return allow(review)

    with AdmissionServer({"/held": held}) as server:
        yield server
        over.set()


def test_writes_that_are_turned_away_fire(site: Site, place: str, holding: AdmissionServer) -> None:
    shard, api = site.shards["shard-1"], site.proxy.api(place)
    webhook = holding.webhook("/held", objectSelector={"matchLabels": SELECTED}, timeoutSeconds=30)
    register(api, holding, "Validating", webhook)
    texts: list[str | None] = [scrape(shard)]

    def more(than: float) -> bool:
        return refusals(shard) > than + 100

    async def turned_away() -> None:
        async with insisting(shard, f"/clusters/{place}{MAPS}", MAX_TASKS + TURNED_AWAY):
            for _ in range(4):
                before = await asyncio.to_thread(refusals, shard)
                await asyncio.to_thread(eventually, partial(more, before), "writes are turned away", WAIT_S)
                texts.append(await asyncio.to_thread(scrape, shard))

    asyncio.run(turned_away())
    api.delete(HOOKS)
    assert fires(texts)["AtollTooManyRequests"] == 1


def test_a_controller_that_is_refused_again_and_again_fires(site: Site, place: str) -> None:
    shard, api = site.shards["shard-1"], site.proxy.api(place)
    series = 'workqueue_retries_total{name="namespacedefaults"}'
    with AdmissionServer({"/deny": deny("no")}) as server:
        register(api, server, "Validating", server.webhook("/deny"))
        first, before = value(shard, series), scrape(shard)
        for number in range(10):
            api.post("/api/v1/namespaces", {"metadata": {"name": f"refused-{number}"}}, expect=201)
        eventually(lambda: value(shard, series) > first + 40, "they are tried again", WAIT_S)
        after = scrape(shard)
        api.delete(HOOKS)
    assert fires([before, after]) == {"AtollControllersFail": 1}


def test_a_process_that_others_cannot_ask_for_its_numbers_fires(site: Site) -> None:
    shard = site.shards["shard-1"]
    # The worker keeps the connection; what stands still is the process that writes.
    scraping = shard.api("", "prometheus", *GROUPS)
    texts: list[str | None] = [scraping.get("/metrics").body.decode()]
    shard.freeze()
    try:
        texts += [scraping.get("/metrics").body.decode() for _ in range(5)]
    finally:
        shard.thaw()
        scraping.close()
    shard.wait_ready()
    assert fires(texts)["AtollMetricsMissing"] == 1


def test_streams_that_are_lost_three_times_in_an_hour_fire(site: Site) -> None:
    series, texts = 'atoll_replication_generations{shard="shard-1"}', [scrape(site.root)]
    for _ in range(3):
        before = value(site.root, series)
        site.nats.stop()
        site.nats.delete_store()
        site.nats.start()
        eventually(lambda: value(site.root, series) > before, "all is read again", WAIT_S)  # noqa: B023
        texts.append(scrape(site.root))
    assert fires([*texts])["AtollReplicationRereads"] == 1


def test_who_writes_into_the_streams_of_a_shard_fires_there_and_at_its_followers(site: Site, place: str) -> None:
    shard = site.shards["shard-1"]
    refused = 'atoll_replication_refused_rows_total{reason="unsigned",shard="shard-1"}'
    before, before_root, first = scrape(shard), scrape(site.root), value(shard, "atoll_stream_foreign_messages")

    async def write() -> None:
        file = credential_path(site.layout.pki, shard_user("shard-1"))
        connection = await Connection.open(read_access(site.nats.url, str(file)), "stranger")
        for kind in KINDS:
            await inject(connection, forged("fence", control(kind, Operation.FENCE, Stranger("shard-1"), 1)))
        await connection.close()

    asyncio.run(write())
    eventually(lambda: value(site.root, refused) > 0, "the row is refused", WAIT_S)
    # The shard sees it when it writes the next time.
    site.proxy.api(place).post(MAPS, configmap("next"), expect=201)
    eventually(lambda: value(shard, "atoll_stream_foreign_messages") > first, "the message is counted", WAIT_S)
    assert fires([before, scrape(shard)]) == {"AtollForeignMessages": 1}
    assert fires([before_root, scrape(site.root)]) == {"AtollRowsRefused": 1}
