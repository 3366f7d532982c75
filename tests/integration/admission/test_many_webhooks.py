"""One large object and very many webhooks: others are served meanwhile, in bounded memory."""

from __future__ import annotations

import asyncio

import pytest
from loadtest import webhook

from harness.clients.api import Api, crd, define
from harness.clients.loop_probe import LoopProbe
from harness.servers.memory import forget_peak, peak_bytes, rss_bytes
from harness.servers.shard_process import ShardProcess

GROUP = "shapes.example.com"
SQUARES = f"/apis/{GROUP}/v1/namespaces/default/squares"
WEBHOOKS, OBJECT_BYTES = 300, 2_900_000
PROMISED_S, PROMISED_BYTES = 0.1, 150 << 20


@pytest.mark.long
async def test_three_hundred_webhooks_of_one_large_object_hold_nobody_up(api: Api, shard: ShardProcess) -> None:
    async with webhook.running() as running:
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        versions = [{"name": "v1", "served": True, "storage": True, "schema": schema}]
        await asyncio.to_thread(define, api, crd("squares", versions=versions))
        rule = {"operations": ["CREATE"], "apiGroups": [GROUP], "apiVersions": ["*"], "resources": ["squares"]}
        configuration = running.configuration(timeoutSeconds=30, rules=[rule])
        (one,) = configuration["webhooks"]
        configuration["webhooks"] = [{**one, "name": f"w{index}.example.com"} for index in range(WEBHOOKS)]
        await asyncio.to_thread(api.post, webhook.CONFIGURATIONS, configuration)
        spec = {f"key-{index}": "x" * 1000 for index in range(OBJECT_BYTES // 1000)}
        large = {"apiVersion": f"{GROUP}/v1", "kind": "Square", "metadata": {"name": "large"}, "spec": spec}
        forget_peak(shard.pid)
        before = rss_bytes(shard.pid)
        with LoopProbe(api, shard.pid) as probe:
            stored = await asyncio.to_thread(api.post, SQUARES, large)
        assert stored.json["spec"] == spec
        assert probe.worst_s < PROMISED_S
        assert peak_bytes(shard.pid) - before < PROMISED_BYTES
