"""What an edge cluster alone knows to be wrong with an object, case by case."""

from __future__ import annotations

import pytest

from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.soundness import missing, unsound
from atoll.machinery.meta.objects import Object

NAMESPACE = ObjectRef("", "namespaces", "", "shop")
DEFINITION = ObjectRef("apiextensions.k8s.io", "customresourcedefinitions", "", "cogs.x.dev")
DEPLOYMENT = ObjectRef("apps", "deployments", "shop", "web")


def condition(type_: str, status: str, message: str = "") -> Object:
    return {"conditions": [{"type": type_, "status": status, "message": message}]}


@pytest.mark.parametrize(
    ("ref", "metadata", "status", "reason", "message"),
    [
        (NAMESPACE, {}, {"phase": "Active"}, "", ""),
        (NAMESPACE, {"deletionTimestamp": "t"}, {}, "Terminating", "the Namespace is being deleted"),
        (
            NAMESPACE,
            {"deletionTimestamp": "t"},
            condition("NamespaceFinalizersRemaining", "True", "x in 1 resource instances"),
            "Terminating",
            "x in 1 resource instances",
        ),
        (DEFINITION, {}, {}, "", ""),
        (DEFINITION, {}, condition("Established", "True"), "", ""),
        (DEFINITION, {}, condition("Established", "False", "no"), "NotEstablished", "no"),
        (DEFINITION, {}, condition("NamesAccepted", "False", "taken"), "NamesNotAccepted", "taken"),
        (DEPLOYMENT, {"generation": 3}, {"observedGeneration": 3}, "", ""),
        (
            DEPLOYMENT,
            {"generation": 3},
            {"observedGeneration": 2},
            "NotObserved",
            "its controller has seen generation 2 of 3",
        ),
        (DEPLOYMENT, {"generation": 3}, {}, "", ""),
        (DEPLOYMENT, {}, {"observedGeneration": "2"}, "", ""),
    ],
)
def test_an_object_is_sound_or_says_why_not(
    ref: ObjectRef, metadata: Object, status: Object, reason: str, message: str
) -> None:
    found = unsound(ref, {"metadata": metadata, "status": status}, 0.0)
    assert ((found.reason, found.message) if found is not None else ("", "")) == (reason, message)


def test_a_text_of_the_edge_is_cut() -> None:
    found = unsound(DEFINITION, {"metadata": {}, "status": condition("Established", "False", "x" * 999)}, 0.0)
    assert found is not None
    assert len(found.message) == 256


def test_what_waits_says_for_what() -> None:
    assert missing(NAMESPACE, 0.0).message == "it waits for its Namespace shop"
    assert missing(DEFINITION, 0.0).message == "it waits for its definition cogs.x.dev"
