"""Field selectors that Kubernetes has beside metadata.name and metadata.namespace, by name of the kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from atoll.machinery.kinds.checks import items, mapping, number, text
from atoll.machinery.meta.objects import Object

Label = Callable[[Object], str]


def _text(path: str) -> Label:
    names = path.split(".")
    return lambda obj: text(obj, *names)


def _count(*path: str) -> Label:
    return lambda obj: str(number(obj, *path) or 0)


def _flag(*path: str) -> Label:
    return lambda obj: "true" if mapping(obj, *path[:-1]).get(path[-1]) is True else "false"


def _first_address(obj: Object) -> str:
    return next((text(each, "ip") for each in items(obj, "status", "podIPs")), "")


def _texts(*paths: str) -> dict[str, Label]:
    return {path: _text(path) for path in paths}


_POD = {
    **_texts("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName"),
    **_texts("status.phase", "status.nominatedNodeName"),
    "spec.hostNetwork": _flag("spec", "hostNetwork"),
    #: What old clients call the node.
    "spec.host": _text("spec.nodeName"),
    "status.podIP": _first_address,
    # Known to Kubernetes and never set there.
    "status.podIPs": lambda obj: "",
}
_LABELS: Mapping[str, Mapping[str, Label]] = MappingProxyType(
    {
        "Pod": _POD,
        "Node": {"spec.unschedulable": _flag("spec", "unschedulable")},
        "ReplicationController": {"status.replicas": _count("status", "replicas")},
        "Service": _texts("spec.clusterIP", "spec.type"),
        "Job": {"status.successful": _count("status", "succeeded")},
        "ResourceSlice": _texts("spec.nodeName", "spec.driver"),
    }
)


def field_labels(kind: str) -> Mapping[str, Label]:
    """Return the readers of a kind's field labels; empty for most kinds."""
    return _LABELS.get(kind, {})
