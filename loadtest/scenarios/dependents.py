"""How much memory does collecting many dependents of one owner take, and how long?

The owner is deleted in the background, and then another one with as many dependents in the foreground. What counts is
the most private memory of the server at any look, above what it had before the deletion.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from atoll.machinery.client.client import Client
from atoll.machinery.meta.objects import Object, encode_json
from loadtest.bench import CONFIG_MAPS, Bench, sound
from loadtest.http import closed_loop
from loadtest.report import Row
from loadtest.server import Cost, Server

CLIENTS, LOOK_EVERY_S, LONGEST_S = 16, 0.25, 600
PATH = f"/clusters/root{CONFIG_MAPS.path('default')}"


async def run(bench: Bench) -> list[Row]:
    count = bench.size(5_000, 100_000)
    rows = []
    async with bench.server() as server, server.client("root") as client:
        for policy in ("Background", "Foreground"):
            owner = await client.create(CONFIG_MAPS, _config_map(f"owner-{policy.lower()}"), "default")
            sound(await closed_loop(server.origin, _dependents(server, owner, count), CLIENTS, LONGEST_S))
            before = server.memory().private
            with Cost(server) as cost:
                most = await _collected(server, client, owner["metadata"]["name"], policy)
            rows += [
                Row(f"collect {count:,} dependents, {policy.lower()}: memory", max(0, most - before) / 1e6, "MB", 100),
                Row("  time", cost.wall_s, "s", note=cost.note(count)),
            ]
    return rows


def _config_map(name: str, **metadata: list[Object]) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}


def _dependents(server: Server, owner: Object, count: int) -> Iterator[bytes]:
    metadata = owner["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": metadata["name"], "uid": metadata["uid"]}
    origin, references = server.origin, [{**reference, "blockOwnerDeletion": True}]
    for number in range(count):
        body = _config_map(f"of-{metadata['name']}-{number}", ownerReferences=references)
        yield origin.request("POST", PATH, encode_json(body))


async def _collected(server: Server, client: Client, owner: str, policy: str) -> int:
    """Delete the owner and wait until it and its dependents are gone; return the most private bytes seen."""
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy}
    await client.request("DELETE", CONFIG_MAPS.path("default", owner), body=options)
    most = 0
    async with asyncio.timeout(LONGEST_S):
        while True:
            most = max(most, server.memory().private)
            page = await client.request("GET", CONFIG_MAPS.path("default"), {"limit": "3"})
            if not any(owner in item["metadata"]["name"] for item in page["items"]):
                return most
            await asyncio.sleep(LOOK_EVERY_S)
