"""Expressions that take long: conditions of webhooks and policies hold up nobody, on requests and on what controllers
write in batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from harness.clients.api import Api, configmap, crd, define
from harness.clients.loop_probe import LoopProbe
from harness.servers.shard_process import ShardProcess
from harness.servers.stand_ins.admission import (
    CONFIGMAPS,
    MAPS,
    AdmissionServer,
    allow,
    configuration,
    configurations,
    register,
)

Object = dict[str, Any]
GROUP = "/apis/admissionregistration.k8s.io/v1"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
STATUS_OF_DEFINITIONS: Object = {
    "operations": ["UPDATE"],
    "apiGroups": ["apiextensions.k8s.io"],
    "apiVersions": ["*"],
    "resources": ["customresourcedefinitions/status"],
}
#: How long nothing of the server may hold its event loop.
PROMISED_S = 0.1
NUMBERS = f"[{', '.join(map(str, range(45)))}]"
#: Some 100,000 steps: a fifth of a second.
SLOW = f"{NUMBERS}.all(x, {NUMBERS}.all(y, {NUMBERS}.all(z, x + y + z >= 0)))"


@pytest.fixture
def server() -> Iterator[AdmissionServer]:
    with AdmissionServer({"/allow": allow}) as running:
        yield running


def install(api: Api, server: AdmissionServer, kind: str, rule: Object) -> None:
    """Two webhooks of a kind whose conditions take long."""
    conditions = [{"name": "slow", "expression": SLOW}]
    webhook = server.webhook("/allow", rule, matchConditions=conditions)
    hooks = [{**webhook, "name": f"slow-{number}.example.com"} for number in range(2)]
    register(api, server, kind, *hooks)


@pytest.mark.parametrize("kind", ["Validating", "Mutating"])
def test_conditions_of_webhooks_are_evaluated_beside_the_loop(
    api: Api, shard: ShardProcess, server: AdmissionServer, kind: str
) -> None:
    install(api, server, kind, CONFIGMAPS)
    with LoopProbe(api, shard.pid) as probe:
        api.post(MAPS, configmap("a"))
    assert [request["name"] for request in server.requests("/allow")].count("a") == 2
    assert probe.worst_s < 2 * PROMISED_S


@pytest.mark.long
@pytest.mark.parametrize("kind", ["Validating", "Mutating"])
def test_conditions_do_not_hold_what_controllers_write_in_batches(
    api: Api, shard: ShardProcess, server: AdmissionServer, kind: str
) -> None:
    install(api, server, kind, STATUS_OF_DEFINITIONS)
    with LoopProbe(api, shard.pid) as probe:
        define(api, crd("widgets"))
    assert len(server.requests("/allow")) >= 2
    assert probe.worst_s < 2 * PROMISED_S


def test_a_slow_mutating_policy_acts_on_what_controllers_write_in_batches(api: Api, shard: ShardProcess) -> None:
    expression = 'Object{metadata: Object.metadata{annotations: {"slow": string(variables.slow)}}}'
    spec = {
        "matchConstraints": {"resourceRules": [STATUS_OF_DEFINITIONS]},
        "reinvocationPolicy": "Never",
        "variables": [{"name": "slow", "expression": SLOW}],
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
    }
    policy, binding = "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"
    version = "admissionregistration.k8s.io/v1"
    api.post(
        f"{GROUP}/mutatingadmissionpolicies",
        {"apiVersion": version, "kind": policy, "metadata": {"name": "slow"}, "spec": spec},
    )
    api.post(
        f"{GROUP}/mutatingadmissionpolicybindings",
        {"apiVersion": version, "kind": binding, "metadata": {"name": "slow"}, "spec": {"policyName": "slow"}},
    )
    with LoopProbe(api, shard.pid) as probe:
        name = define(api, crd("widgets"))["metadata"]["name"]
    assert api.get(f"{CRDS}/{name}").json["metadata"]["annotations"]["slow"] == "true"
    assert probe.worst_s < 2 * PROMISED_S


@pytest.mark.long
def test_many_webhooks_are_asked_about_a_large_object_and_hold_nobody(
    api: Api, shard: ShardProcess, server: AdmissionServer
) -> None:
    webhook = server.webhook("/allow", failurePolicy="Ignore", timeoutSeconds=1)
    for kind in ("Validating", "Mutating"):
        hooks = [{**webhook, "name": f"hook-{number}.example.com"} for number in range(40)]
        api.post(configurations(kind), configuration(kind, "many", *hooks))
        with LoopProbe(api, shard.pid) as probe:
            found = api.post(
                MAPS, configmap(kind.lower(), {f"key-{number}": "x" for number in range(60_000)}), expect=0
            )
        # One after the other, mutating webhooks may need more time than a request has.
        assert found.code in {201, 504}
        assert probe.worst_s < 5 * PROMISED_S, kind
        api.delete(f"{configurations(kind)}/many")
