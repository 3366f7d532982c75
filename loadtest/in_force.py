"""How soon is a change of a provider's policy in force on another shard?

A site of two shards, a provider on one and its consumer on the other, which asks again and again: the time is from
sending the change to the first answer that follows it.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

from harness.clients.api import Api, eventually
from harness.clients.exports import BINDINGS, an_object, bind, binding, make_export, objects_path, schema
from harness.clients.policies import POLICIES, Policies, policy, rule
from harness.clients.site_workspaces import on, ready, workspace
from harness.servers.site import Site
from loadtest.bench import percentile
from loadtest.report import Row

BUDGET_MS = 100
CIRCLES = schema("circles")


async def measure(place: Path, rounds: int) -> Row:
    """Return the row of `rounds` changes; `place` is a fresh directory, which is removed."""
    try:
        took_ms = await asyncio.to_thread(_measured, Site(place, shards=2, proxy=False), rounds)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    note = f"{rounds} changes; p95 {percentile(took_ms, 0.95):.0f} ms"
    text = "a provider's policy changed, in force on another shard: p50"
    return Row(text, percentile(took_ms, 0.5), "ms", BUDGET_MS, note=note)


def _measured(site: Site, rounds: int) -> list[float]:
    """Milliseconds of each round; the first, in which the language is loaded, does not count."""
    with site:
        provider, consumer = (_place(site, shard) for shard in ("root", "shard-1"))
        make_export(provider, "shapes", CIRCLES)
        probe = binding(provider.cluster, "shapes")
        eventually(lambda: consumer.send("POST", f"{BINDINGS}?dryRun=All", probe).code == 201, "the export is known")
        bind(consumer, provider.cluster, "shapes")
        rules = [rule("circles", group="shapes.example.com")]
        Policies(provider).add(policy("changed", {"expression": "false", "message": "round 0"}, rules=rules))
        return [_round(provider, consumer, number) for number in range(rounds + 1)][1:]


def _place(site: Site, shard: str) -> Api:
    root = site.root.api("root")
    made = ready(root, workspace(root, selector=on(shard)))
    return site.shards[shard].api(made["spec"]["cluster"])


def _round(provider: Api, consumer: Api, number: int) -> float:
    said, attempt = f"round {number}", an_object(CIRCLES, "round")
    validations = [{"expression": "false", "message": said}]
    began = time.monotonic()
    provider.patch(f"{POLICIES}/changed", {"spec": {"validations": validations}})
    path = f"{objects_path(CIRCLES)}?dryRun=All"
    while said not in consumer.send("POST", path, attempt).body.decode():
        pass
    return (time.monotonic() - began) * 1000
