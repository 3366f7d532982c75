"""No request blocks a front proxy or a cache server: /livez answers beside large requests and large replicas.

The promise is 100 ms; the test allows 400 ms. Only CPU time of the process counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll.machinery.stream.credential_file import read_access
from atoll.standalone.site.credentials import CACHE_USER
from harness.clients.api import MERGE, TABLE, Api, crd, eventually
from harness.clients.exports import SCHEMAS, schema_of
from harness.clients.loop_probe import LoopProbe
from harness.clients.site_workspaces import led_to, on, ready, workspace
from harness.data.large_requests import LARGE, LARGEST, LargeRequest, prepare_objects
from harness.servers.cache_server_process import CacheProcess
from harness.servers.in_process.cache_server import BASE, MASTER
from harness.servers.site import Endpoint, Site

pytestmark = pytest.mark.long

PROMISED_S = 0.1


@pytest.fixture(scope="module")
def bulk(site: Site, admin: Api) -> Iterator[Api]:
    """kcp-admin through the proxy, in a workspace with the objects that the requests read."""
    here = led_to(site.proxy.api(ready(admin, workspace(admin, selector=on("root")))["spec"]["cluster"]))
    prepare_objects(here)
    yield here
    here.close()


@pytest.mark.parametrize(
    "request_",
    [*LARGEST, *(pytest.param(each, marks=pytest.mark.long) for each in LARGE)],
    ids=lambda each: each.name.replace(" ", "-"),
)
def test_livez_of_the_proxy_answers_while_it_passes_on_a_large_request(
    request_: LargeRequest, bulk: Api, site: Site
) -> None:
    with LoopProbe(bulk, site.proxy.pid) as probe:
        request_.send(bulk)
    assert probe.worst_s < 4 * PROMISED_S


def test_livez_of_a_cache_server_answers_while_a_large_replica_comes_and_is_read(
    bulk: Api, site: Site, tmp_path: Path
) -> None:
    definition = crd("circles", "shapes.example.com")
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"] = {
        "type": "object",
        "properties": {f"field{at:03}": {"type": "string", "description": "d" * 1500} for at in range(500)},
    }
    access = read_access(site.nats.url, str(site.layout.credential(CACHE_USER)))
    with CacheProcess(tmp_path / "cache", access) as cache:
        api = Api(Endpoint(f"https://127.0.0.1:{cache.port}", cache.people.client(MASTER)), user="")
        eventually(lambda: api.send("GET", "/readyz").code == 200, "the cache server is ready", timeout_s=60)
        with LoopProbe(api, cache.pid) as probe:
            made = bulk.post(SCHEMAS, schema_of(definition, "large")).json["metadata"]
            path = f"{BASE}/shards/root/clusters/{bulk.cluster}{SCHEMAS}"
            one = f"{path}/{made['name']}"
            eventually(lambda: api.send("GET", one).code == 200, "the replica is served", timeout_s=60)
            for accept in ("", "application/yaml", TABLE):
                api.send("GET", path, accept=accept, expect=200)
            api.send("PATCH", one, b'{"metadata":{"labels":{"a":"b"}}}', kind=MERGE, expect=200)
        api.close()
    assert probe.worst_s < 4 * PROMISED_S
