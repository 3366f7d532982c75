"""What must a durable create of a 1 KB object cost at least in this runtime, and which part is sockets, JSON, and rows?

A bare server does what no server can leave out, at three depths, under the load of `create` with sixteen clients. The
difference to `create` is what a control plane adds: who asks, may they, is it valid, who owns which field, what follows
from it, and the events of it.
"""

from __future__ import annotations

from loadtest import bare_server, processes
from loadtest.bare_server import JSON, REPLY, STORE
from loadtest.bench import Bench, sound
from loadtest.http import Origin, closed_loop
from loadtest.report import Row
from loadtest.scenarios.create import requests
from loadtest.server import Cost

_CLIENTS = 16
_NAMES = {
    REPLY: "bare server: sockets and TLS",
    JSON: "bare server: and JSON of the object",
    STORE: "bare server: and rows, synced",
}


async def run(bench: Bench) -> list[Row]:
    rows = []
    for depth, name in _NAMES.items():
        async with bare_server.running(bench.place(), depth, processes.cores()[0]) as server:
            origin = Origin("127.0.0.1", server.port, server.tls, "x" * 40)
            await closed_loop(origin, requests(origin), _CLIENTS, bench.seconds(1, 1))
            with Cost(server) as cost:
                load = sound(await closed_loop(origin, requests(origin), _CLIENTS, bench.seconds(4, 20)))
        rows += [
            Row(f"{name}, {_CLIENTS} clients", load.rate, "/s", more=True),
            Row("  CPU a request", cost.cpu_s / load.answers * 1e6, "us"),
        ]
    return rows
