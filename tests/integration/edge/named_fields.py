"""The fields of the edge's kinds that name something, each with the spec of an object that names it there.

`test_names_of_others` gives them the name of what another tenant has, and one that nobody has.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.clients.api import Object
from harness.servers.edge_service import GROUP
from integration.edge.placed import LOCATIONS, PLACEMENTS

#: What the other tenant has, and what nobody has, by names of equal length.
THEIRS, NOBODYS = "hidden", "absent"
COLLECTORS = f"{GROUP}/statuscollectors"
ONE: Object = {"locationSelectors": [{"matchLabels": {"env": "one"}}]}


def at_one(**downsync: object) -> Object:
    return {**ONE, "downsync": [downsync]}


def up_from_one(**upsync: object) -> Object:
    everything = {"apiGroup": "", "resources": ["configmaps"], "namespaces": ["*"], "names": ["*"]}
    return {**ONE, "upsync": [{**everything, **upsync}]}


def about(**target: object) -> Object:
    return {"target": [target], **COUNT}


def exists(key: str) -> Object:
    return {"matchExpressions": [{"key": key, "operator": "Exists"}]}


def is_one_of(value: str) -> Object:
    return {"matchExpressions": [{"key": THEIRS, "operator": "In", "values": [value]}]}


COUNT: Object = {"combinedFields": [{"name": "n", "type": "COUNT"}]}
BELOW: Object = {"resource": "configmaps", "label": "of"}
#: Field that refers to something -> the spec of an object that names it there.
PLACEMENT_FIELDS: dict[str, Callable[[str], Object]] = {
    "locationSelectors.matchLabels": lambda name: {"locationSelectors": [{"matchLabels": {name: name}}]},
    "locationSelectors.matchExpressions.key": lambda name: {"locationSelectors": [exists(name)]},
    "locationSelectors.matchExpressions.values": lambda name: {"locationSelectors": [is_one_of(name)]},
    "downsync.apiGroup": lambda name: at_one(apiGroup=f"{name}.example.com"),
    "downsync.resources": lambda name: at_one(apiGroup="hidden.example.com", resources=[f"{name}s"]),
    "downsync.namespaces": lambda name: at_one(apiGroup="", namespaces=[name]),
    "downsync.namespaceSelectors.matchLabels": lambda name: at_one(namespaceSelectors=[{"matchLabels": {name: name}}]),
    "downsync.namespaceSelectors.matchExpressions.key": lambda name: at_one(namespaceSelectors=[exists(name)]),
    "downsync.namespaceSelectors.matchExpressions.values": lambda name: at_one(namespaceSelectors=[is_one_of(name)]),
    "downsync.objectNames": lambda name: at_one(apiGroup="", objectNames=[name]),
    "downsync.labelSelectors.matchLabels": lambda name: at_one(labelSelectors=[{"matchLabels": {name: name}}]),
    "downsync.labelSelectors.matchExpressions.key": lambda name: at_one(labelSelectors=[exists(name)]),
    "downsync.labelSelectors.matchExpressions.values": lambda name: at_one(labelSelectors=[is_one_of(name)]),
    "upsync.apiGroup": lambda name: up_from_one(apiGroup=f"{name}.example.com"),
    "upsync.resources": lambda name: up_from_one(apiGroup="hidden.example.com", resources=[f"{name}s"]),
    "upsync.namespaces": lambda name: up_from_one(namespaces=[name]),
    "upsync.names": lambda name: up_from_one(names=[name]),
}
COLLECTOR_FIELDS: dict[str, Callable[[str], Object]] = {
    "target.apiGroup": lambda name: about(apiGroup=f"{name}.example.com"),
    "target.resources": lambda name: about(apiGroup="hidden.example.com", resources=[f"{name}s"]),
    "target.namespaces": lambda name: about(namespaces=[name]),
    "target.objectNames": lambda name: about(objectNames=[name]),
    "target.labelSelectors.matchLabels": lambda name: about(labelSelectors=[{"matchLabels": {name: name}}]),
    "target.labelSelectors.matchExpressions.key": lambda name: about(labelSelectors=[exists(name)]),
    "target.labelSelectors.matchExpressions.values": lambda name: about(labelSelectors=[is_one_of(name)]),
    "edgePlacements": lambda name: {"edgePlacements": [name], **COUNT},
    "associated.apiGroup": lambda name: {"associated": [{**BELOW, "apiGroup": f"{name}.example.com"}]},
    "associated.resource": lambda name: {"associated": [{**BELOW, "resource": f"{name}s"}]},
    "associated.owners.apiGroup": lambda name: {
        "associated": [{"resource": "configmaps", "owners": [{"apiGroup": f"{name}.example.com", "resource": "a"}]}]
    },
    "associated.owners.resource": lambda name: {
        "associated": [{"resource": "configmaps", "owners": [{"resource": f"{name}s"}]}]
    },
    "associated.label": lambda name: {"associated": [{"resource": "configmaps", "label": name}]},
}
RESOURCE: Object = {"resource": {"group": GROUP.split("/")[2], "version": "v2alpha1", "resource": "synctargets"}}
LOCATION_FIELDS: dict[str, Callable[[str], Object]] = {
    "availableSelectorLabels.key": lambda name: {
        **RESOURCE,
        "availableSelectorLabels": [{"key": name, "values": ["a"]}],
    },
    "availableSelectorLabels.values": lambda name: {
        **RESOURCE,
        "availableSelectorLabels": [{"key": "a", "values": [name]}],
    },
    "instanceSelector.matchLabels": lambda name: {**RESOURCE, "instanceSelector": {"matchLabels": {"id": name}}},
    "instanceSelector.matchExpressions.key": lambda name: {**RESOURCE, "instanceSelector": exists(name)},
    "instanceSelector.matchExpressions.values": lambda name: {**RESOURCE, "instanceSelector": is_one_of(name)},
}
FIELDS = {
    "EdgePlacement": (PLACEMENTS, PLACEMENT_FIELDS),
    "StatusCollector": (COLLECTORS, COLLECTOR_FIELDS),
    "Location": (LOCATIONS, LOCATION_FIELDS),
}
#: Fields that name nothing: what has one value only, numbers and flags, texts for people, and what is evaluated on the
#: tenant's own objects.
NAMELESS = {
    "EdgePlacement": {
        *(f"{each}.matchExpressions.operator" for each in ("locationSelectors", "downsync.namespaceSelectors")),
        "downsync.labelSelectors.matchExpressions.operator",
        "wantSingletonReportedState",
    },
    "StatusCollector": {
        *("filter", "groupBy.name", "groupBy.def", "select.name", "select.def", "limit"),
        *("combinedFields.name", "combinedFields.type", "combinedFields.subject"),
        *("broken.test", "broken.message", "broken.maxObjects"),
        *("associated.field", "associated.fields.name", "associated.fields.path"),
        *("associated.copies", "associated.maxObjects", "target.labelSelectors.matchExpressions.operator"),
    },
    "Location": {
        *("resource.group", "resource.version", "resource.resource", "description"),
        *("availableSelectorLabels.description", "instanceSelector.matchExpressions.operator"),
    },
}
#: Annotation of an object -> a value that names something.
ANNOTATIONS: dict[str, Callable[[str], str]] = {
    "edge.kubestellar.io/customizer": lambda name: name,
    "customizer in a namespace": lambda name: f"{name}/{name}",
    "edge.kubestellar.io/sources": lambda name: name,
    "edge.kubestellar.io/upsynced": lambda name: f"ConfigMap/default/{name}",
    "edge.kubestellar.io/associated-with": lambda name: f"ConfigMap/default/{name}",
}
