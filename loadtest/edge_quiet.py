"""Part of the scenario `edge`: a syncer that carries many objects and has nothing to do.

Bytes are those of its connections to the center, TLS included; requests are what the server's audit log has of it.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from atoll.edge.kinds import PLACEMENTS, SYNCER_CONFIGS
from atoll.machinery.edge.names import MAILBOX_VIEW, SYNCER, THE_ONE
from atoll.machinery.meta.conditions import is_true
from atoll.machinery.meta.objects import conditions_of, status_of
from atoll.syncer.mailbox import ITEMS
from loadtest.bench import CONFIG_MAPS, Bench, config_map
from loadtest.edge_site import LIMIT_S, WORKLOAD, EdgeServer, Mailbox, arrivals, config_maps_of, make_mailboxes, place
from loadtest.edge_syncer import CountingRelay, SyncerProcess, syncing
from loadtest.report import Row

HOUR_S, POLL_S = 3600.0, 15.0
KEPT = "leases"


class Request(NamedTuple):
    """One request of the syncer."""

    verb: str
    path: str

    @property
    def is_write(self) -> bool:
        return self.verb not in ("get", "list", "watch")


class Requests:
    """The syncer's requests in an audit log, since the last look."""

    def __init__(self, log: Path) -> None:
        self._log, self._position = log, 0

    def new(self) -> list[Request]:
        with self._log.open("rb") as file:
            file.seek(self._position)
            lines = file.read().splitlines(keepends=True)
        whole = [each for each in lines if each.endswith(b"\n")]
        self._position += sum(map(len, whole))
        events = [msgspec.json.decode(each) for each in whole]
        return [
            Request(each["verb"], each["requestURI"])
            for each in events
            if each.get("userAgent") == SYNCER and each["stage"] == "ResponseComplete"
        ]


async def quiet(bench: Bench, server: EdgeServer, edge: Path, cluster: str) -> list[Row]:
    """Fill a mailbox, start its syncer, start it again, and leave it alone."""
    count = bench.size(1000, 1000)
    (mailbox,) = await make_mailboxes(server, ["quiet"], fleet="quiet")
    revision = await _fill(server, mailbox, count)
    requests = Requests(Path(server.flags[server.flags.index("--audit-log-path") + 1]))
    async with CountingRelay(urlsplit(server.url).port or 0) as relay:
        syncer = await SyncerProcess.registered(bench.place(), server, mailbox, edge, relay.port)
        began = time.perf_counter()
        async with syncing(syncer):
            await syncer.until_idle(revision)
            filled_s = time.perf_counter() - began
            filled = syncer.memory()
            # What is done is reported within a second, and known to be read a second later.
            await asyncio.sleep(3)
        requests.new()
        began = time.perf_counter()
        async with syncing(syncer):
            await syncer.until_idle(revision)
            restarted_s = time.perf_counter() - began
            # The status is written a second later, if at all.
            await asyncio.sleep(3)
            writes = [each for each in requests.new() if each.is_write and KEPT not in each.path]
            before, began = relay.passed, time.perf_counter()
            await asyncio.sleep(bench.seconds(120, 600))
            seconds, passed = time.perf_counter() - began, relay.passed - before
            found = requests.new()
            memory = syncer.memory()
    at_edge = [each for each in found if each.path.startswith(f"/clusters/{cluster}/") and each.verb != "watch"]
    others = [each for each in at_edge if KEPT not in each.path]
    per_hour, written = HOUR_S / seconds, " ".join(sorted({each.path for each in writes}))
    polled = await _size(server, mailbox, cluster) * HOUR_S / POLL_S
    return [
        Row(f"syncer with {count:,} objects: memory", memory.resident / 1e6, "MB", 60, note=_private(memory.private)),
        Row("  memory after they were written", filled.resident / 1e6, "MB", note=_private(filled.private)),
        Row("  written to the edge in", filled_s, "s", note=f"{count / filled_s:,.0f} /s"),
        Row("  restart until it has looked at everything", restarted_s, "s", 2),
        Row("  writes of a restart, without Leases", len(writes), "", note=written),
        Row("  a quiet hour, to and from the center", passed * per_hour / 1000, "KB", 300),
        Row("  requests to the center in that hour", (len(found) - len(at_edge)) * per_hour, ""),
        Row("  requests to the edge in that hour but watches and the Lease", len(others) * per_hour, ""),
        Row("  renewals of the Lease at the edge in that hour", (len(at_edge) - len(others)) * per_hour, ""),
        Row(f"  polling all of it every {POLL_S:.0f} s, computed", polled / 1000, "KB", note="an hour, bodies alone"),
    ]


def _private(size: int) -> str:
    return f"{size / 1e6:.0f} MB not backed by files"


async def _fill(server: EdgeServer, mailbox: Mailbox, count: int) -> int:
    """Place objects in a mailbox; return the revision of its list."""
    async with server.client(WORKLOAD) as workload, arrivals(workload, PLACEMENTS) as seen:
        for number in range(count):
            obj = config_map(f"quiet-{number}")
            obj["metadata"] |= {"labels": {"fleet": "quiet"}, "namespace": "default"}
            await workload.create(CONFIG_MAPS, obj)
        full = seen.expect(
            "quiet", lambda obj: status_of(obj).get("objectCount") == count and is_true(conditions_of(obj), "Projected")
        )
        await place(workload, "quiet", config_maps_of("quiet"))
        async with asyncio.timeout(LIMIT_S):
            await full
    async with server.client(mailbox.cluster) as inside:
        return int((await inside.get(SYNCER_CONFIGS, THE_ONE))["metadata"]["resourceVersion"])


async def _size(server: EdgeServer, mailbox: Mailbox, cluster: str) -> int:
    """The bytes of all that a poll of the center and of the edge reads."""
    async with server.client(cluster) as edge:
        below = await edge.raw("GET", CONFIG_MAPS.path("default"))
    async with server.client() as root:
        view = root.view(f"{server.url}/services/{MAILBOX_VIEW}/clusters/{mailbox.cluster}", "")
        above = await view.raw("GET", ITEMS.path())
    return len(below) + len(above)
