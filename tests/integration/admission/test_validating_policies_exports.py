"""Policies of an export's workspace act on the objects that consumers make of its API, and on no others."""

from __future__ import annotations

from typing import Any

from harness.clients.api import Api, configmap, crd, define
from harness.clients.exports import bind, make_export, schema
from harness.clients.policies import Policies, binding, denial, policy, rule

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
CIRCLES = "/apis/shapes.example.com/v1/namespaces/default/circles"
RULES = [rule("circles", group="shapes.example.com")]


def circle(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "shapes.example.com/v1", "kind": "Circle", "metadata": {"name": name}, "spec": spec}


def test_a_providers_policy_acts_on_bound_objects_beside_the_consumers_own(provider: Api, consumer: Api) -> None:
    make_export(provider, "shapes", schema("circles"))
    bind(consumer, provider.cluster, "shapes")
    seen = "request.userInfo.username + '/' + namespaceObject.metadata.labels.team"
    Policies(provider).deny("b", {"expression": "object.spec.replicas < 5", "messageExpression": seen}, rules=RULES)
    Policies(provider).deny("c", "false")
    consumer.patch("/api/v1/namespaces/default", {"metadata": {"labels": {"team": "blue"}}})
    refused = consumer.post(CIRCLES, circle("a", replicas=6), expect=422)
    assert refused.message.endswith(denial("b", "kcp-admin/blue"))
    consumer.post(CIRCLES, circle("a", replicas=4))
    Policies(consumer).deny("a", {"expression": "object.spec.replicas > 1", "message": "own"}, rules=RULES)
    assert consumer.post(CIRCLES, circle("b", replicas=1), expect=422).message.endswith(denial("a", "own"))
    assert consumer.post(CIRCLES, circle("b", replicas=6), expect=422).message.endswith(denial("b", "kcp-admin/blue"))
    consumer.post(CONFIGMAPS, configmap("a"))


def test_the_parameters_of_a_providers_policy_are_its_own(provider: Api, consumer: Api) -> None:
    make_export(provider, "shapes", schema("circles"))
    bind(consumer, provider.cluster, "shapes")
    reference = {"parameterNotFoundAction": "Deny", "name": "limit", "namespace": "default"}
    limited = policy(
        "p",
        "object.spec.replicas <= int(params.data.most)",
        rules=RULES,
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
    )
    Policies(provider).add(limited, binding("p", "p", paramRef=reference))
    consumer.post(CONFIGMAPS, configmap("limit", {"most": "9"}))
    assert "no params found" in consumer.post(CIRCLES, circle("a", replicas=6), expect=422).message
    provider.post(CONFIGMAPS, configmap("limit", {"most": "5"}))
    consumer.post(CIRCLES, circle("a", replicas=6), expect=422)
    consumer.post(CIRCLES, circle("a", replicas=5))


def test_a_kind_of_the_same_name_that_is_not_bound_is_untouched(provider: Api, consumer: Api) -> None:
    make_export(provider, "shapes", schema("circles"))
    Policies(provider).deny("p", "false", rules=RULES)
    define(consumer, crd("circles"))
    consumer.post(CIRCLES, circle("a", replicas=6))
