"""Name conflicts of two APIs in a workspace: one has the names, the other reports a conflict until they are free."""

from __future__ import annotations

import json

import pytest

from harness.clients.api import Api, Object, crd
from harness.clients.exports import (
    BINDINGS,
    an_object,
    bind,
    binding,
    cluster_of,
    condition,
    make_export,
    objects_path,
    phase,
    schema,
    unbind,
    wait,
    wait_bound,
    wait_condition,
)

CLUSTER = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "shapes.example.com"


def locks(api: Api) -> Object:
    """The decoded lock annotation."""
    annotations = api.get(CLUSTER).json["metadata"]["annotations"]
    found: Object = json.loads(annotations["internal.apis.kcp.io/resource-bindings"])
    return found


def named(plural: str, **names: object) -> Object:
    """A schema with the given names."""
    made = schema(plural)
    made["spec"]["names"].update(names)
    return made


def test_a_second_export_of_a_resource_waits_until_the_first_is_unbound(provider: Api, consumer: Api) -> None:
    make_export(provider, "one", schema("circles"))
    make_export(provider, "two", schema("circles", prefix="other"))
    bind(consumer, provider.cluster, "one")
    assert locks(consumer)[f"circles.{GROUP}"] == {"n": "one"}
    consumer.post(BINDINGS, binding(provider.cluster, "two"))
    refused = wait_condition(consumer, f"{BINDINGS}/two", "InitialBindingCompleted", "False", "NamingConflicts")
    who = f'APIBinding "one" bound to APIExport "{provider.cluster}:one"'
    assert phase(refused) == "Binding"
    said = condition(refused, "Ready")["message"]
    assert said == f"naming conflict with {who}: spec.names.plural=circles is forbidden"
    assert condition(refused, "APIExportValid")["status"] == "True"
    assert "boundResources" not in refused["status"]
    unbind(consumer, "one")
    bound = wait_bound(consumer, "two")
    assert condition(bound, "Ready")["status"] == "True"
    assert locks(consumer)[f"circles.{GROUP}"] == {"n": "two"}


@pytest.mark.parametrize(
    ("names", "field"),
    [
        ({"singular": "circle"}, "spec.names.singular=circle"),
        ({"shortNames": ["circle"]}, "spec.names.shortNames=[circle]"),
        ({"kind": "Circle"}, "spec.names.kind=Circle"),
        ({"listKind": "CircleList"}, "spec.names.listKind=CircleList"),
    ],
)
def test_every_name_is_held_by_one_api(provider: Api, consumer: Api, names: Object, field: str) -> None:
    make_export(provider, "circles", named("circles", singular="circle", kind="Circle", listKind="CircleList"))
    own = {"singular": "disc", "kind": "Disc", "listKind": "DiscList"}
    make_export(provider, "discs", named("discs", **{**own, **names}))
    bind(consumer, provider.cluster, "circles")
    consumer.post(BINDINGS, binding(provider.cluster, "discs"))
    refused = wait_condition(consumer, f"{BINDINGS}/discs", "Ready", "False", "NamingConflicts")
    assert condition(refused, "Ready")["message"].endswith(f"{field} is forbidden")
    consumer.get(f"/apis/{GROUP}/v1/discs", expect=404)
    unbind(consumer, "circles")
    wait_bound(consumer, "discs")


def test_what_is_free_is_bound_beside_what_is_not(provider: Api, consumer: Api) -> None:
    make_export(provider, "one", schema("circles"))
    make_export(provider, "both", schema("circles", prefix="other"), schema("squares"))
    bind(consumer, provider.cluster, "one")
    consumer.post(BINDINGS, binding(provider.cluster, "both"))
    waiting = wait_condition(consumer, f"{BINDINGS}/both", "Ready", "False", "NamingConflicts")
    assert [each["resource"] for each in waiting["status"]["boundResources"]] == ["squares"]
    assert locks(consumer)[f"squares.{GROUP}"] == {"n": "both"}
    unbind(consumer, "one")
    bound = wait_bound(consumer, "both")
    assert {each["resource"] for each in bound["status"]["boundResources"]} == {"circles", "squares"}


def test_a_definition_of_the_workspace_keeps_its_names(provider: Api, consumer: Api) -> None:
    make_export(provider, "shapes", schema("circles"))
    own = crd("circles", GROUP)
    consumer.post(CRDS, own)
    wait_condition(consumer, f"{CRDS}/circles.{GROUP}", "Established")
    assert locks(consumer)[f"circles.{GROUP}"] == {"c": True}
    consumer.post(BINDINGS, binding(provider.cluster, "shapes"))
    refused = wait_condition(consumer, f"{BINDINGS}/shapes", "Ready", "False", "NamingConflicts")
    text = f'naming conflict with CustomResourceDefinition "circles.{GROUP}": spec.names.plural=circles is forbidden'
    assert condition(refused, "Ready")["message"] == text
    consumer.delete(f"{CRDS}/circles.{GROUP}")
    wait_bound(consumer, "shapes")
    assert locks(consumer)[f"circles.{GROUP}"] == {"n": "shapes"}


def test_a_definition_waits_for_the_names_of_a_binding(provider: Api, consumer: Api) -> None:
    make_export(provider, "shapes", schema("circles"))
    bind(consumer, provider.cluster, "shapes")
    consumer.post(CRDS, crd("circles", GROUP))
    path = f"{CRDS}/circles.{GROUP}"
    wait_condition(consumer, path, "NamesAccepted", "False", "ListKindConflict")
    made = schema("circles")
    consumer.post(objects_path(made), an_object(made, "bound"))
    unbind(consumer, "shapes")
    wait_condition(consumer, path, "Established")
    assert consumer.get(objects_path(made)).json["items"] == []
    wait(consumer, CLUSTER, lambda obj: locks(consumer).get(f"circles.{GROUP}") == {"c": True})


def test_two_bindings_to_one_export_do_not_share_it(provider: Api, consumer: Api) -> None:
    make_export(provider, "shapes", schema("circles"))
    bind(consumer, provider.cluster, "shapes")
    consumer.post(BINDINGS, binding(cluster_of(provider), "shapes", called="again"))
    refused = wait_condition(consumer, f"{BINDINGS}/again", "Ready", "False", "NamingConflicts")
    assert phase(refused) == "Binding"
