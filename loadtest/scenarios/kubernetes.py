"""What do Kubernetes' own kinds cost: the first binding, a workspace bound to them, a create of a Deployment and a LIST
of Pods, beside the same of ConfigMaps?

Nobody binds them before, so that the first binding loads them. Deployments are 1.5 KB as they are sent. What counts of
memory is what no file backs, as in `memory`, after caches are full. A quick run does not wait until the server has
dropped recent changes and returned what they took, so that its figure holds 18 KB of these.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from itertools import repeat

from atoll.machinery.meta.objects import Object, encode_json
from harness.data.kubernetes_objects import DEPLOYMENTS, PODS, deployment, pod
from loadtest import processes
from loadtest.bench import CONFIG_MAPS, Bench, config_map, sound
from loadtest.http import Load, closed_loop
from loadtest.ready import Poster, numbered, posters, readiness
from loadtest.report import Row
from loadtest.server import Cost, Server

CLIENTS, MAKERS, SETTLE_S = 16, 8, 4
#: Workspaces that fill caches, and the time after which a server has returned what a peak took (`freed_memory`).
FILLING, RETURNED_S = 300, 170
TYPE = "kubernetes"
#: The most that a Deployment may cost, in creates of ConfigMaps.
TIMES = 2.4
_PROBE = {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10, "failureThreshold": 3}
_CONTAINER = {
    "name": "main",
    "image": "registry.example.com/shop/web:1.4.2",
    "ports": [{"name": "http", "containerPort": 8080}, {"name": "metrics", "containerPort": 9090}],
    "env": [{"name": f"SERVICE_{index}_ADDRESS", "value": f"service-{index}.shop:8080"} for index in range(8)],
    "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "128Mi"}},
    "readinessProbe": _PROBE,
    "livenessProbe": _PROBE,
    "securityContext": {"runAsNonRoot": True, "readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False},
    "volumeMounts": [{"name": "settings", "mountPath": "/etc/shop", "readOnly": True}],
}
_POD_SPEC = {
    "serviceAccountName": "default",
    "terminationGracePeriodSeconds": 5,
    "containers": [_CONTAINER],
    "volumes": [{"name": "settings", "configMap": {"name": "settings"}}],
}


async def run(bench: Bench) -> list[Row]:
    seconds, objects, kept = bench.seconds(3, 10), bench.size(2_500, 10_000), bench.size(400, 10_000)
    async with bench.server() as server, readiness(server) as ready:
        async with posters(server, ready, 1) as (client,):
            _, elsewhere = await client.make("root", "before")
            await asyncio.sleep(SETTLE_S)
            with Cost(server) as first:
                _, cluster = await client.make("root", "first", TYPE)
        maps, deployments = f"/clusters/{cluster}{CONFIG_MAPS.path('default')}", f"/clusters/{cluster}{DEPLOYMENTS}"
        plain = await _creates(server, maps, _config_map, seconds)
        made = await _creates(server, deployments, _deployment, seconds)
        pods = f"/clusters/{cluster}{PODS}"
        listed = await _listed(server, pods, lambda number: pod(f"p-{number:05d}", **_POD_SPEC), objects)
        plain_list = await _listed(server, maps.replace(cluster, elsewhere), _numbered, objects)
        async with posters(server, ready, MAKERS) as clients:
            memory = await _memory(
                server, clients, bench.size(FILLING, FILLING), kept, bench.seconds(SETTLE_S, RETURNED_S)
            )
    return [
        Row("first binding of Kubernetes' kinds, CPU", first.cpu_s * 1000, "ms", 300, note=first.note(1)),
        Row(f"create of a Deployment of {_bytes(_deployment()):,} bytes, CPU", made, "us", TIMES * plain),
        Row("  in creates of a ConfigMap", made / plain, "times", TIMES, note=f"ConfigMap {plain:.0f} us"),
        Row(f"LIST of {objects:,} Pods", listed, "MB/s", plain_list, more=True, note="budget: that of ConfigMaps"),
        Row(f"memory a workspace of type {TYPE}, {kept:,} made", memory, "KB", 10),
    ]


def _bytes(obj: Object) -> int:
    return len(encode_json(obj))


def _config_map() -> Object:
    return config_map("b-", generate=True, salt=secrets.token_hex(8))


def _numbered(number: int) -> Object:
    return config_map(f"o-{number:05d}")


def _deployment() -> Object:
    made = deployment(replicas=3)
    made["spec"]["template"]["spec"] = _POD_SPEC
    return {**made, "metadata": {"generateName": "web-", "annotations": {"salt": secrets.token_hex(8)}}}


async def _creates(server: Server, path: str, make: Callable[[], Object], seconds: float) -> float:
    """Return the CPU of a create, in microseconds."""

    def requests() -> Iterator[bytes]:
        while True:
            yield server.origin.request("POST", path, encode_json(make()))

    sound(await closed_loop(server.origin, requests(), CLIENTS, min(seconds, 1.0)))
    with Cost(server) as cost:
        load = sound(await closed_loop(server.origin, requests(), CLIENTS, seconds))
    return cost.cpu_s / load.answers * 1e6


async def _listed(server: Server, path: str, make: Callable[[int], Object], count: int) -> float:
    """Return how many megabytes of a list leave in a second."""
    origin = server.origin
    requests = (origin.request("POST", path, encode_json(make(number))) for number in range(count))
    sound(await closed_loop(origin, requests, CLIENTS, 120))
    request = origin.request("GET", path)
    await closed_loop(origin, repeat(request, 3), 1, 30)
    load: Load = sound(await closed_loop(origin, repeat(request, 10), 1, 60))
    return load.bytes / load.answers / load.percentile_ms(0.5) / 1000


async def _memory(server: Server, clients: list[Poster], filling: int, count: int, settle_s: float) -> float:
    """Return the KB of a workspace more, after some that fill caches."""
    await _make(clients, filling)
    before = await _private(server, settle_s)
    await _make(clients, count)
    return max((await _private(server, settle_s) - before) / count / 1000, 0.001)


async def _make(clients: list[Poster], count: int) -> None:
    names = iter(numbered(TYPE, count))

    async def work(client: Poster) -> None:
        for name in names:
            await client.make("root", name, TYPE)

    await asyncio.gather(*map(work, clients))


async def _private(server: Server, settle_s: float) -> int:
    await asyncio.sleep(settle_s)
    return processes.memory([server.pid]).private
