"""How slow does an edge cluster with a stolen token make its neighbours?

It floods its mailbox over sixteen connections: statuses, objects that come up, Events, lists, and watches. Beside it,
at a steady pace, another syncer writes its status, and a tenant creates and reads. Each first alone, then with the
flood, in its first seconds (what it may take at once) and after them; and once more on a server without the bounds.
The process that floods takes no time of the others: it runs when nothing else wants its core.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import time
from collections.abc import Iterator

from atoll.cli.kubectl.kubestellar import account
from atoll.cli.kubectl.kubestellar.account import Account
from atoll.edge.kinds import SYNCER_CONFIGS
from atoll.machinery.edge.names import MAILBOX_VIEW, THE_ONE
from atoll.machinery.meta.objects import encode_json, spec_of
from harness.clients.api import Api, workspace_under
from harness.servers.mutant_shard import patched
from harness.waits import until
from loadtest.bench import Bench, config_map, percentile
from loadtest.edge_site import LIMIT_S, WORKLOAD, EdgeServer, Mailbox, config_maps_of, make_mailboxes, place
from loadtest.edge_syncer import LIFETIME_S, NAMESPACE
from loadtest.http import Connection, Origin, connect
from loadtest.report import Row
from loadtest.server import Cost
from loadtest.token_flood import MERGE, STATUS, Target, flooding

CONNECTIONS, WATCHES = 16, 50
#: Between two requests of a neighbour, and for how long a flood has what it may take at once.
PAUSE_S, BURST_S = 0.02, 5.0
WITHOUT_BOUNDS = """
import atoll.virtualworkspaces.edge.allowance as a
import atoll.virtualworkspaces.edge.loop_time as t
import atoll.virtualworkspaces.edge.mailbox as m
a.Allowances.take = lambda self, *arguments: None
t.Turns.take = lambda self, http: None
m.MAX_WATCHES = 0
"""
FLEET = "stolen"

#: By neighbour: when each request was sent, from the beginning, and how long it took, in seconds.
Latencies = dict[str, list[tuple[float, float]]]


async def run(bench: Bench) -> list[Row]:
    rows: list[Row] = []
    for name, code in (("", ""), (", without the bounds", WITHOUT_BOUNDS)):
        server = EdgeServer(bench.place())
        if code:
            server.environment = {**server.environment, **patched(server.root.parent, code)}
        try:
            async with server:
                await server.free_children()
                await server.controllers()
                rows += await _measure(bench, server, name)
        finally:
            shutil.rmtree(server.root.parent, ignore_errors=True)
    return rows


async def _measure(bench: Bench, server: EdgeServer, name: str) -> list[Row]:
    robbed, neighbour = await make_mailboxes(server, ["robbed", "neighbour"], fleet=FLEET)
    await _collect_all(server, robbed)
    target = await _target(server, robbed)
    neighbours = {
        "status of another edge": _statuses(await _target(server, neighbour)),
        **_tenant(server.origin, await asyncio.to_thread(workspace_under, Api(server, "root"))),
    }
    burst_s, seconds = bench.seconds(BURST_S, BURST_S), bench.seconds(12, 30)
    await _paced(server.origin, neighbours, burst_s)
    alone = await _paced(server.origin, neighbours, seconds)
    async with flooding(target, CONNECTIONS, WATCHES, seconds) as flood:
        with Cost(server) as cost:
            beside = await _paced(server.origin, neighbours, seconds)
        answers = await flood
    served = (answers.count - answers.refused) / answers.wall_s
    note = f"{served:.0f}/s of them served, CPU of the center {cost.cpu_s / cost.wall_s:.0%}"
    rows = [Row(f"the flood{name}", answers.count / answers.wall_s, "/s", more=True, note=note)]
    for what, found in alone.items():
        before = _p99_ms(found, 0, seconds)
        rows += [
            Row(f"{what} alone: p99", before, "ms", note=f"p50 {_ms(found, 0.5):.1f} ms"),
            Row("  beside the flood, its first seconds", _p99_ms(beside[what], 0, burst_s) / before, "x", 2),
            Row("  later", _p99_ms(beside[what], burst_s, seconds) / before, "x", 2),
        ]
    return rows


def _p99_ms(found: list[tuple[float, float]], begin_s: float, end_s: float) -> float:
    return _ms([each for each in found if begin_s <= each[0] < end_s], 0.99)


def _ms(found: list[tuple[float, float]], share: float) -> float:
    return percentile([took_s for _, took_s in found], share) * 1000


async def _collect_all(server: EdgeServer, robbed: Mailbox) -> None:
    """Have ConfigMaps come up, and wait until the mailbox takes them."""
    async with server.client(WORKLOAD) as workload, server.client(robbed.cluster) as inside:
        upsync = {"apiGroup": "", "resources": ["configmaps"], "namespaces": ["*"], "names": ["*"]}
        await place(workload, FLEET, config_maps_of(FLEET), upsync=[upsync])

        async def is_listed() -> bool:
            return bool(spec_of(await inside.get(SYNCER_CONFIGS, THE_ONE)).get("upsync"))

        await until(is_listed, "the mailbox takes what comes up", LIMIT_S)


async def _target(server: EdgeServer, mailbox: Mailbox) -> Target:
    async with server.client(mailbox.cluster) as client:
        token = await account.ensure(client, Account(NAMESPACE, {}, LIFETIME_S), silent=True)
    origin = server.origin
    prefix = f"/services/{MAILBOX_VIEW}/clusters/{mailbox.cluster}"
    return Target(origin.host, origin.port, server.authority().decode(), token, prefix)


def _statuses(target: Target) -> Iterator[bytes]:
    origin = target.origin
    while True:
        body = encode_json({"status": {"appliedRevision": str(time.monotonic_ns())}})
        yield origin.request("PATCH", target.prefix + STATUS, body, MERGE)


def _tenant(origin: Origin, workspace: str) -> dict[str, Iterator[bytes]]:
    path = f"/clusters/{workspace}/api/v1/namespaces/default"

    def creates() -> Iterator[bytes]:
        while True:
            body = config_map("n-", generate=True, salt=secrets.token_hex(8))
            yield origin.request("POST", f"{path}/configmaps", encode_json(body))

    def gets() -> Iterator[bytes]:
        while True:
            yield origin.request("GET", f"{path}/configmaps/kube-root-ca.crt")

    return {"create of a tenant": creates(), "GET of a tenant": gets()}


async def _paced(origin: Origin, neighbours: dict[str, Iterator[bytes]], seconds: float) -> Latencies:
    """Send the requests of all neighbours side by side, each on one connection, with a pause behind each answer."""
    found = await asyncio.gather(*(_one(origin, requests, seconds) for requests in neighbours.values()))
    return dict(zip(neighbours, found, strict=True))


async def _one(origin: Origin, requests: Iterator[bytes], seconds: float) -> list[tuple[float, float]]:
    """Raises RuntimeError if a request fails."""
    answers: asyncio.Queue[int] = asyncio.Queue()
    made: list[Connection] = []

    def make() -> Connection:
        made.append(Connection(lambda connection, status, size: answers.put_nowait(status)))
        return made[-1]

    await connect(origin, 1, make)
    found, began = list[tuple[float, float]](), time.perf_counter()
    while (at_s := time.perf_counter() - began) < seconds:
        made[0].send(next(requests))
        if (status := await answers.get()) not in (200, 201):
            raise RuntimeError(f"a neighbour was answered {status}")
        found.append((at_s, time.perf_counter() - began - at_s))
        await asyncio.sleep(PAUSE_S)
    made[0].close()
    return found
