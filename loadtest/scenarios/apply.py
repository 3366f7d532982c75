"""What does a server-side apply of 1 KB and of 20 KB cost the server, when it changes something and when it does not?

The small object is a ConfigMap; the large one is a custom object of a hundred keyed items, each with fields, labels
and a nested list, so that its 20 KB are many fields and not a few long texts. Every answer is durable, and the whole
request counts: HTTP, TLS, the chain, the store, and publishing on the stream.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable, Iterator
from functools import partial

from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.meta.status import NotFound
from loadtest.bench import Bench, config_map, sound
from loadtest.http import Origin, closed_loop
from loadtest.report import Row
from loadtest.server import Cost, Server

SMALL_US, LARGE_US = 500, 3000
#: As many clients as the scenario of creates has; enough objects that two of them do not meet on one.
OBJECTS, CONNECTIONS, ITEMS = 128, 16, 100
SMALL = "/clusters/root/api/v1/namespaces/default/configmaps"
LARGE = "/clusters/root/apis/load.example.com/v1/namespaces/default/boxes"
_DEFINITIONS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", False)
_APPLY = "application/apply-patch+yaml"

_STRING: Object = {"type": "string"}


def _keyed(**properties: Object) -> Object:
    return {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "required": ["name"], "properties": {"name": _STRING, **properties}},
    }


def definition() -> Object:
    """A kind whose items are told apart by their names."""
    items = _keyed(
        image=_STRING,
        port={"type": "integer"},
        paused={"type": "boolean"},
        labels={"type": "object", "additionalProperties": _STRING},
        env=_keyed(value=_STRING),
    )
    properties = {"spec": {"type": "object", "properties": {"items": items}}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
    }
    names = {"plural": "boxes", "singular": "box", "kind": "Box", "listKind": "BoxList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "boxes.load.example.com"},
        "spec": {"group": "load.example.com", "scope": "Namespaced", "names": names, "versions": [version]},
    }


def large(name: str, salt: str) -> Object:
    """About 20 KB; the salt changes one field."""
    items = [
        {
            "name": f"item-{number:03d}",
            "image": f"registry.example.com/team/image:{salt if not number else 'v1'}",
            "port": 8000 + number,
            "paused": False,
            "labels": {"app": f"a{number}", "tier": "backend"},
            "env": [{"name": "HOME", "value": "/srv"}, {"name": "LEVEL", "value": "debug"}],
        }
        for number in range(ITEMS)
    ]
    return {"apiVersion": "load.example.com/v1", "kind": "Box", "metadata": {"name": name}, "spec": {"items": items}}


async def run(bench: Bench) -> list[Row]:
    seconds = bench.seconds(3, 15)
    async with bench.server() as server:
        async with server.client() as client:
            await client.create(_DEFINITIONS, definition())
            await _served(client)
        rows = []
        for text, make, path, budget in (
            ("1 KB", lambda name, salt: config_map(name, salt=salt), SMALL, SMALL_US),
            (f"{len(encode_json(large('b-00', ''))) / 1000:.0f} KB", large, LARGE, LARGE_US),
        ):
            changing = await _cost_us(
                server, seconds, path, partial(lambda m, name: m(name, secrets.token_hex(8)), make)
            )
            settled = await _cost_us(server, seconds, path, partial(lambda m, name: m(name, "same"), make))
            rows.append(Row(f"apply {text} that changes a field, CPU", changing, "us", budget))
            rows.append(Row(f"apply {text} that changes nothing, CPU", settled, "us", budget))
        return rows


async def _served(client: Client) -> None:
    """Wait until the definition's objects can be listed."""
    async with asyncio.timeout(10):
        while True:
            try:
                await client.list(Resource("load.example.com", "v1", "boxes"), "default")
                return
            except NotFound:
                await asyncio.sleep(0.02)


async def _cost_us(server: Server, seconds: float, path: str, make: Callable[[str], Object]) -> float:
    """CPU of the server's process for one request, after a round over all objects."""
    origin = server.origin
    await closed_loop(origin, itertools.islice(_requests(origin, path, make), OBJECTS), CONNECTIONS, seconds)
    with Cost(server) as cost:
        load = sound(await closed_loop(origin, _requests(origin, path, make), CONNECTIONS, seconds))
    return cost.cpu_s / load.answers * 1e6


def _requests(origin: Origin, path: str, make: Callable[[str], Object]) -> Iterator[bytes]:
    for number in itertools.cycle(range(OBJECTS)):
        name = f"b-{number:02d}"
        body = encode_json(make(name))
        yield origin.request("PATCH", f"{path}/{name}?fieldManager=load", body, _APPLY)
