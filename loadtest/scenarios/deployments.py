"""What does a create of a Deployment of 1.5 KB cost, beside one of a ConfigMap of 1 KB?

Another checkout that does not know these kinds makes ConfigMaps under the name of Deployments, so that `--against` it
tells what a Deployment costs in creates of a ConfigMap there.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator

from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object, encode_json
from harness.data.kubernetes_objects import DEPLOYMENTS, deployment
from loadtest.bench import CONFIG_MAPS, Bench, config_map, sound
from loadtest.http import closed_loop
from loadtest.ready import posters, readiness
from loadtest.report import Row
from loadtest.server import Cost, Server

#: The type of workspaces that serve Kubernetes' own kinds.
TYPE = "kubernetes"
CLIENTS, TURNS = 16, 2
#: The most that a Deployment may cost, in creates of ConfigMaps.
TIMES = 1.6
_TYPES = Resource("tenancy.kcp.io", "v1alpha1", "workspacetypes", False)
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
#: The spec of a Pod that makes its Deployment 1.5 KB.
POD_SPEC = {
    "serviceAccountName": "default",
    "terminationGracePeriodSeconds": 5,
    "containers": [_CONTAINER],
    "volumes": [{"name": "settings", "configMap": {"name": "settings"}}],
}


async def run(bench: Bench) -> list[Row]:
    seconds = bench.seconds(3, 10) / TURNS
    async with bench.server() as server:
        cluster, known = await _workspace(server)
        maps = _Creates(server, f"/clusters/{cluster}{CONFIG_MAPS.path('default')}", _config_map)
        deployments = _Creates(server, f"/clusters/{cluster}{DEPLOYMENTS}", _deployment) if known else maps
        # In turn, so that what else runs on the machine meets both alike.
        for measured in [False, *[True] * TURNS]:
            plain = await maps.load(seconds, measured)
            made = await deployments.load(seconds, measured)
    return [
        Row("create of a ConfigMap of 1 KB, CPU", plain, "us"),
        Row(f"create of a Deployment of {len(encode_json(_deployment())):,} bytes, CPU", made, "us", TIMES * plain),
        Row("  in creates of a ConfigMap", made / plain, "times", TIMES),
    ]


async def _workspace(server: Server) -> tuple[str, bool]:
    """Return the cluster of a new workspace, and whether it serves Kubernetes' own kinds."""
    async with server.client("root") as client:
        known = any(each["metadata"]["name"] == TYPE for each in (await client.list(_TYPES))["items"])
    async with readiness(server) as ready, posters(server, ready, 1) as (client,):
        return (await client.make("root", "creates", TYPE if known else "universal"))[1], known


def _config_map() -> Object:
    return config_map("b-", generate=True, salt=secrets.token_hex(8))


def _deployment() -> Object:
    made = deployment(replicas=3)
    made["spec"]["template"]["spec"] = POD_SPEC
    return {**made, "metadata": {"generateName": "web-", "annotations": {"salt": secrets.token_hex(8)}}}


class _Creates:
    """Creates of one kind of object, in several loads."""

    def __init__(self, server: Server, path: str, make: Callable[[], Object]) -> None:
        self._server, self._path, self._make = server, path, make
        self._cpu_s, self._answers = 0.0, 0

    def _requests(self) -> Iterator[bytes]:
        while True:
            yield self._server.origin.request("POST", self._path, encode_json(self._make()))

    async def load(self, seconds: float, measured: bool) -> float:
        """Return the CPU of a create in all measured loads so far, in microseconds."""
        with Cost(self._server) as cost:
            load = sound(await closed_loop(self._server.origin, self._requests(), CLIENTS, seconds))
        if measured:
            self._cpu_s, self._answers = self._cpu_s + cost.cpu_s, self._answers + load.answers
        return self._cpu_s / max(self._answers, 1) * 1e6
