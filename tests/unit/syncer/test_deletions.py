"""Deletions at an edge cluster: under the condition that nothing changed, and with what the object owns."""

from __future__ import annotations

import json
from pathlib import Path

from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.plan import Delete
from atoll.syncer.credentials import target
from atoll.syncer.edge import Edge
from atoll.syncer.kinds import Kind
from atoll.syncer.rate import RateLimit
from harness.servers.stand_ins.canned_api import CannedApi, serving

JOBS = Kind(Resource("batch", "v1", "jobs"), "Job", True, frozenset({"delete"}))
COUNT = Delete(ObjectRef("batch", "jobs", "shop", "count"), "uid", "7")


async def test_what_an_object_owns_goes_with_it_by_the_body_of_the_request(tmp_path: Path) -> None:
    async with serving(CannedApi()) as api, Client(target(str(api.kubeconfig(tmp_path)), "")) as client:
        await Edge(client, "uid", RateLimit(100.0, 100)).delete(JOBS, COUNT)
    (request,) = api.requests
    assert (request.method, request.path) == ("DELETE", "/clusters/root/apis/batch/v1/namespaces/shop/jobs/count")
    # Where there is a body, kube-apiserver reads no options from the query.
    assert json.loads(request.body) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "uid", "resourceVersion": "7"},
        "propagationPolicy": "Background",
    }
