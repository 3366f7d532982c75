"""The other versions of a resource, and objects converted between them."""

from __future__ import annotations

from atoll.machinery.apiserver.admission.configured.equivalents import equivalents, presented, restored
from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.kinds.core.events import EVENTS
from atoll.machinery.kinds.custom import kinds_of_crd
from atoll.machinery.kinds.events.events import EVENTS_V1
from atoll.machinery.kinds.registry import NATIVE
from atoll.machinery.meta.names import LOCAL
from atoll.machinery.meta.objects import Object


def _version(name: str, *, storage: bool) -> Object:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {"name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": schema}}


def _definition() -> Object:
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    return {
        "metadata": {"name": "widgets.example.com", "uid": "1", "generation": 1},
        "spec": {
            "group": "example.com",
            "names": names,
            "scope": "Namespaced",
            "versions": [_version("v1", storage=True), _version("v2", storage=False)],
            "conversion": {"strategy": "None"},
        },
        "status": {"acceptedNames": names, "conditions": [{"type": "Established", "status": "True"}]},
    }


def test_events_of_both_groups_are_equivalent_and_convert_both_ways() -> None:
    catalog = Catalog(NATIVE)
    assert equivalents(catalog, EVENTS) == (EVENTS_V1,)
    assert equivalents(catalog, EVENTS_V1) == (EVENTS,)
    event: Object = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "one"}, "message": "started"}
    other = presented(EVENTS, event, EVENTS_V1)
    assert (other["apiVersion"], other["note"]) == ("events.k8s.io/v1", "started")
    assert restored(EVENTS, other, EVENTS_V1) == event


def test_most_kinds_have_no_equivalents() -> None:
    catalog = Catalog(NATIVE)
    several = {kind.group_resource for kind in NATIVE if equivalents(catalog, kind)}
    assert several == {"events", "events.events.k8s.io"}


def test_versions_of_a_definition_are_equivalent_and_convert_both_ways() -> None:
    kinds = kinds_of_crd(_definition(), LOCAL)
    catalog = Catalog([*NATIVE, *kinds])
    first = next(kind for kind in kinds if kind.version == "v1")
    (second,) = equivalents(catalog, first)
    widget: Object = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "one"},
        "spec": {"size": 1},
    }
    other = presented(first, widget, second)
    assert other == {**widget, "apiVersion": "example.com/v2"}
    assert restored(first, other, second) == widget


def test_a_scale_is_the_same_in_all_versions_of_its_resource() -> None:
    first, second = (kind for kind in kinds_of_crd(_definition(), LOCAL))
    scale: Object = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "one"}}
    assert presented(first, scale, second, "scale") is scale
