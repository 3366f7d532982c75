"""How long until a definition of 1.5 MB is served, what does it cost in memory for one workspace and for many, and how
does a workspace with hundreds of definitions answer discovery, and what does that take?

A definition counts as served when its kind is listed by discovery, its objects can be listed and its OpenAPI document
is there. What counts of memory is what no file backs.
"""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from atoll.machinery.meta.objects import Object
from loadtest import processes
from loadtest.bench import CONFIG_MAPS, Bench, config_map, percentile
from loadtest.http import Origin
from loadtest.ready import posters, readiness
from loadtest.report import Row
from loadtest.server import Cost, Server

GROUP = "load.example.com"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
LARGE_BYTES, USUAL_BYTES = 1_450_000, 25_000
RING_BYTES, FILLING_BYTES = 64 * 1024 * 1024, 1_000_000
SETTLE_S = 3
LIMIT_S = 60


async def run(bench: Bench) -> list[Row]:
    sharing, count = bench.size(30, 100), bench.size(100, 500)
    async with bench.server() as server:
        large = await _large(server, sharing)
    async with bench.server() as server:
        return [*large, *await _many(server, count)]


async def _large(server: Server, sharing: int) -> list[Row]:
    async with readiness(server) as ready, posters(server, ready, 1) as clients, _client(server) as client:
        clusters = [(await clients[0].make("root", f"large-{index}"))[1] for index in range(sharing + 1)]
        # Memory for built-in kinds and for recent changes is not counted.
        await client.openapi(clusters[0], "api/v1")
        await client.fill(clusters[0])
        before = await _idle_rss(server)
        definition = crd("whales", LARGE_BYTES)
        with Cost(server) as cost:
            served_s, openapi_s = await client.define(clusters[0], definition)
        alone = await _idle_rss(server)
        with Cost(server) as again_cost:
            again = [await client.define(cluster, definition) for cluster in clusters[1:]]
        shared = await _idle_rss(server)
    size = len(msgspec.json.encode(definition)) / 1e6
    return [
        Row(f"definition of {size:.1f} MB, POST to served", served_s, "s", 1, note=f"OpenAPI after {openapi_s:.2f} s"),
        Row("  CPU for both", cost.cpu_s, "s", 1),
        Row("  the same in one workspace more", percentile([each[0] for each in again], 0.5), "s", 1),
        Row("  CPU for both", again_cost.cpu_s / sharing, "s", 1),
        Row("  memory for it", _grown_mb(before, alone), "MB", 40),
        Row(f"  memory a workspace more, of {sharing}", _grown_mb(alone, shared) / sharing, "MB", 0.1),
    ]


async def _many(server: Server, count: int) -> list[Row]:
    async with readiness(server) as ready, posters(server, ready, 1) as clients, _client(server) as client:
        cluster = (await clients[0].make("root", "many"))[1]
        await client.discovery(cluster)
        before = await _idle_rss(server)
        began = time.perf_counter()
        with Cost(server) as cost:
            for index in range(count):
                await client.post(cluster, crd(f"kind{index}s", USUAL_BYTES))
            await client.listed(cluster, count)
        defined_s = time.perf_counter() - began
        after = await _idle_rss(server)
        # One change rebuilds everything that depends on all definitions together.
        await client.post(cluster, crd("others", USUAL_BYTES))
        await client.listed(cluster, count + 1)
        await client.post(cluster, crd("lasts", USUAL_BYTES))
        fresh_ms = (await client.timed(client.discovery(cluster))) * 1000
        kept_ms = [(await client.timed(client.discovery(cluster))) * 1000 for _ in range(20)]
        openapi_s = await client.timed(client.openapi(cluster, f"apis/{GROUP}/v1"))
        v2_s = await client.timed(client.v2(cluster))
        published = await _idle_rss(server)
    return [
        Row(f"{count} definitions, each from POST to listed", defined_s / count * 1000, "ms", 50),
        Row("  CPU for each", cost.cpu_s / count * 1000, "ms", 50, note=cost.note(count)),
        Row("  discovery right after one more", fresh_ms, "ms", 50),
        Row("  discovery", percentile(kept_ms, 0.5), "ms", 50, note=f"p95 {percentile(kept_ms, 0.95):.1f} ms"),
        Row("  memory for them", _grown_mb(before, after), "MB", 200),
        Row("  OpenAPI v3 of their group", openapi_s, "s", 1, note=f"v2 of everything {v2_s:.2f} s"),
        Row("  memory with both published", _grown_mb(before, published), "MB", 200),
    ]


async def _idle_rss(server: Server) -> float:
    await asyncio.sleep(SETTLE_S)
    return processes.memory([server.pid]).private


def _grown_mb(before: float, after: float) -> float:
    """Return what was taken between two readings in MB, 0.001 at least: memory freed before may be returned between."""
    return max((after - before) / 1e6, 0.001)


# --- definitions -----------------------------------------------------------------------------------------


def crd(plural: str, size_bytes: int) -> Object:
    """A definition with a schema of about a size: specs of nested objects with texts, as generators write them."""
    kind = plural.removesuffix("s").capitalize()
    sample = len(msgspec.json.encode(_part(0)))
    spec = {f"part{index}": _part(index) for index in range(max(size_bytes // sample, 1))}
    properties = {"spec": {"type": "object", "properties": spec}, "status": {"type": "object", "properties": {}}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
    }
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def _part(index: int) -> Object:
    text = f"What part {index} of this object is about, in as many words as people use to say such things."
    fields: Object = {
        name: {"type": "string", "description": text, "maxLength": 63, "pattern": "^[a-z0-9-]*$"}
        for name in ("name", "namespace", "purpose")
    }
    fields["replicas"] = {"type": "integer", "format": "int32", "minimum": 0, "default": 1, "description": text}
    fields["mode"] = {"type": "string", "enum": ["Always", "Never"], "description": text}
    selector = {"type": "object", "additionalProperties": {"type": "string"}, "description": text}
    items = {"type": "object", "required": ["name"], "properties": {**fields, "selector": selector}}
    fields["rules"] = {"type": "array", "items": items, "description": text}
    return {"type": "object", "description": text, "properties": fields}


# --- the client ------------------------------------------------------------------------------------------


class _Client:
    """One connection, one request at a time."""

    def __init__(self, origin: Origin, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._origin, self._reader, self._writer = origin, reader, writer

    async def timed(self, work: object) -> float:
        """Seconds that something took."""
        began = time.perf_counter()
        await work  # type: ignore[misc]
        return time.perf_counter() - began

    async def define(self, cluster: str, definition: Object) -> tuple[float, float]:
        """Create it; seconds until its kind is listed and answers, and until its document is there."""
        plural, began = definition["spec"]["names"]["plural"], time.perf_counter()
        await self.post(cluster, definition)
        while (await self.send("GET", f"/clusters/{cluster}/apis/{GROUP}/v1/{plural}"))[0] != 200:
            self._within(began)
        listed = await self.discovery(cluster)
        if f'"resource":"{plural}"'.encode() not in listed:
            raise RuntimeError(f"{plural} answers and is not listed")
        served_s = time.perf_counter() - began
        await self.openapi(cluster, f"apis/{GROUP}/v1")
        return served_s, time.perf_counter() - began

    async def fill(self, cluster: str) -> None:
        """Fill what the server keeps of recent changes, whatever they are about, up to its bound."""
        path = f"/clusters/{cluster}{CONFIG_MAPS.path('default')}"
        for index in range(RING_BYTES // FILLING_BYTES + 1):
            body = config_map(f"large-{index}", filling="z" * FILLING_BYTES)
            code, answer = await self.send("POST", path, body)
            if code != 201:
                raise RuntimeError(f"a large object was answered {code}: {answer[:300]!r}")

    async def listed(self, cluster: str, count: int) -> None:
        """Return when discovery lists so many definitions' kinds."""
        began = time.perf_counter()
        while (await self.discovery(cluster)).count(f'"responseKind":{{"group":"{GROUP}"'.encode()) < count:
            self._within(began)
            await asyncio.sleep(0.02)

    async def post(self, cluster: str, definition: Object) -> None:
        code, body = await self.send("POST", f"/clusters/{cluster}{CRDS}", definition)
        if code != 201:
            raise RuntimeError(f"a definition was answered {code}: {body[:300]!r}")

    async def discovery(self, cluster: str) -> bytes:
        return await self._get(f"/clusters/{cluster}/apis", accept=AGGREGATED)

    async def openapi(self, cluster: str, key: str) -> bytes:
        return await self._get(f"/clusters/{cluster}/openapi/v3/{key}")

    async def v2(self, cluster: str) -> bytes:
        return await self._get(f"/clusters/{cluster}/openapi/v2")

    async def _get(self, path: str, accept: str = "application/json") -> bytes:
        code, body = await self.send("GET", path, accept=accept)
        if code != 200:
            raise RuntimeError(f"{path} was answered {code}")
        return body

    def _within(self, began: float) -> None:
        if time.perf_counter() - began > LIMIT_S:
            raise RuntimeError(f"not served after {LIMIT_S} s")

    async def send(
        self, method: str, path: str, body: Object | None = None, accept: str = "application/json"
    ) -> tuple[int, bytes]:
        """Code and body of an answer."""
        data = b"" if body is None else msgspec.json.encode(body)
        head = [
            f"{method} {path} HTTP/1.1",
            f"Host: {self._origin.host}",
            f"Authorization: Bearer {self._origin.token}",
            f"Accept: {accept}",
            "Accept-Encoding: gzip",
            "Content-Type: application/json",
            f"Content-Length: {len(data)}",
            "",
            "",
        ]
        self._writer.write("\r\n".join(head).encode() + data)
        lines = (await self._reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        headers = dict(line.split(b": ", 1) for line in lines[1:] if b": " in line)
        answer = await self._reader.readexactly(int(headers.get(b"content-length", b"0")))
        if headers.get(b"content-encoding") == b"gzip":
            answer = gzip.decompress(answer)
        return int(lines[0].split()[1]), answer


@asynccontextmanager
async def _client(server: Server) -> AsyncIterator[_Client]:
    origin = server.origin
    reader, writer = await asyncio.open_connection(origin.host, origin.port, ssl=origin.tls, limit=1 << 24)
    try:
        yield _Client(origin, reader, writer)
    finally:
        writer.close()
