"""What does a create of a 1 KB object cost more under a quota, a policy of three rules, or a webhook on this machine?
How soon is a change of a provider's policy in force on another shard (`loadtest.in_force`)?

Each case has a namespace of its own, and a configuration that selects it; the first is free of all of them. CPU is that
of the shard at sixteen clients, above that of the first case. The webhook is a process of its own on the load's core:
its row has what a create takes longer than without it, the webhook's own time included.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from atoll.machinery.meta.objects import Object, encode_json
from loadtest import in_force, webhook
from loadtest.bench import Bench, config_map, sound
from loadtest.http import Load, Origin, closed_loop
from loadtest.report import Row
from loadtest.server import Cost, Server

GROUP = "/clusters/root/apis/admissionregistration.k8s.io/v1"
NAMESPACES = "/clusters/root/api/v1/namespaces"
FREE, QUOTA, POLICY, WEBHOOK = "free", "quota", "policy", "webhook"
_META = "kubernetes.io/metadata.name"
RULES = (
    "!has(object.metadata.labels) || object.metadata.labels.size() < 64",
    "!has(object.data) || object.data.all(key, size(key) < 200)",
    "request.namespace == object.metadata.namespace",
)


async def run(bench: Bench) -> list[Row]:
    async with bench.server("--egress-allow-cidr", "127.0.0.0/8") as server, webhook.running() as hook:
        await _configure(server, hook)
        found = {case: await _measure(bench, server, case) for case in (FREE, QUOTA, POLICY, WEBHOOK)}
    free_ms, free_us = found[FREE]
    return [
        Row("create, nothing configured: CPU", free_us, "us", 250),
        Row("  a quota: CPU more", max(found[QUOTA][1] - free_us, 0.0), "us", 15),
        Row("  a policy of three rules: CPU more", max(found[POLICY][1] - free_us, 0.0), "us", 40),
        Row("  a webhook: p50 more, 1 client", max(found[WEBHOOK][0] - free_ms, 0.0), "ms", 1),
        Row("  a webhook: CPU more", max(found[WEBHOOK][1] - free_us, 0.0), "us", 400),
        await in_force.measure(bench.place(), bench.size(20, 100)),
    ]


async def _measure(bench: Bench, server: Server, case: str) -> tuple[float, float]:
    """Return p50 in ms at one client, and CPU of a create in us at sixteen."""
    await _load(server, case, 16, bench.seconds(1, 1))
    alone, _ = await _load(server, case, 1, bench.seconds(3, 10))
    many, cost = await _load(server, case, 16, bench.seconds(3, 10))
    return alone.percentile_ms(0.5), cost.cpu_s / many.answers * 1e6


async def _load(server: Server, case: str, connections: int, seconds: float) -> tuple[Load, Cost]:
    with Cost(server) as cost:
        load = await closed_loop(server.origin, _creates(server.origin, case), connections, seconds)
    return sound(load), cost


def _creates(origin: Origin, case: str) -> Iterator[bytes]:
    path = f"{NAMESPACES}/{case}/configmaps"
    while True:
        yield origin.request("POST", path, encode_json(config_map("b-", generate=True, salt=secrets.token_hex(8))))


async def _configure(server: Server, hook: webhook.Webhook) -> None:
    made = [(NAMESPACES, _object("v1", "Namespace", case)) for case in (FREE, QUOTA, POLICY, WEBHOOK)]
    hard = {"hard": {"count/configmaps": "1000000"}}
    made.append((f"{NAMESPACES}/{QUOTA}/resourcequotas", _object("v1", "ResourceQuota", "limit", spec=hard)))
    made += [
        (f"{GROUP}/validatingadmissionpolicies", _registered("ValidatingAdmissionPolicy", spec=_policy())),
        (
            f"{GROUP}/validatingadmissionpolicybindings",
            _registered("ValidatingAdmissionPolicyBinding", spec=_binding()),
        ),
        (f"/clusters/root{webhook.CONFIGURATIONS}", hook.configuration(namespaceSelector=_selector(WEBHOOK))),
    ]
    for path, obj in made:
        requests = iter([server.origin.request("POST", path, encode_json(obj))])
        sound(await closed_loop(server.origin, requests, 1, 10))


def _object(api_version: str, kind: str, name: str, **fields: object) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}


def _registered(kind: str, **fields: object) -> Object:
    return _object("admissionregistration.k8s.io/v1", kind, "measured", **fields)


def _selector(case: str) -> Object:
    return {"matchLabels": {_META: case}}


def _policy() -> Object:
    return {
        "matchConstraints": {"resourceRules": [webhook.CREATES], "namespaceSelector": _selector(POLICY)},
        "validations": [{"expression": rule} for rule in RULES],
    }


def _binding() -> Object:
    return {"policyName": "measured", "validationActions": ["Deny"]}
