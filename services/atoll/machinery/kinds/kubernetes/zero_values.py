"""Components as Kubernetes' own code reads them: nothing is required, and what is absent has Go's zero value.

`schemas` compiles them, and `validation` then reports what may not be empty, as kube-apiserver does: typed clients
leave out, or write null for, what the published schema requires. Texts, numbers and amounts get the value that
Kubernetes shows; lists, maps and times, which it shows as null, stay absent. Invariant: published components keep what
they require; values are made once, shared and immutable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from atoll.machinery.kinds.kubernetes.tables import components
from atoll.machinery.kinds.native_schemas import REF_PREFIX
from atoll.machinery.meta.objects import Object

_ZEROS: Mapping[str, Any] = {"string": "", "integer": 0, "boolean": False}
_ZEROS_OF_COMPONENTS: Mapping[str, Any] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "0",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": 0,
}
#: A field that Go shows although it is optional.
_DIVISOR = ("io.k8s.api.core.v1.ResourceFieldSelector", "divisor")
#: Required fields that Go does not show while they are empty, or that are pointers.
OMITTED = frozenset(
    {
        ("io.k8s.api.core.v1.ContainerRestartRule", "action"),
        ("io.k8s.api.core.v1.ContainerRestartRuleOnExitCodes", "operator"),
        ("io.k8s.api.core.v1.ImageVolumeStatus", "imageRef"),
        ("io.k8s.api.core.v1.PodCertificateProjection", "keyType"),
        ("io.k8s.api.core.v1.PodCertificateProjection", "signerName"),
        ("io.k8s.api.networking.v1.HTTPIngressPath", "pathType"),
        ("io.k8s.api.networking.v1.ParentReference", "name"),
        ("io.k8s.api.networking.v1.ParentReference", "resource"),
        ("io.k8s.api.resource.v1.CapacityRequestPolicyRange", "min"),
    }
)


class GoComponents(Mapping[str, Object]):
    """All components in this form, each made when it is first asked for."""

    def __getitem__(self, name: str) -> Object:
        return go_component(name)

    def __iter__(self) -> Iterator[str]:
        return iter(components())

    def __len__(self) -> int:
        return len(components())


@cache
def go_component(name: str) -> Object:
    """Return a component in this form. Raises KeyError for an unknown name."""
    source = components()[name]
    if not source.get("required"):
        return source
    fields: Object = dict(source["properties"])
    for field in (*source["required"], *(_DIVISOR[1:] if name == _DIVISOR[0] else ())):
        zero = None if (name, field) in OMITTED or "default" in fields[field] else _zero(fields[field])
        if zero is not None:
            fields[field] = {**fields[field], "default": zero}
    return {key: value for key, value in source.items() if key != "required"} | {"properties": fields}


def _zero(field: Object) -> Any:
    reference = field.get("$ref") or next((each["$ref"] for each in field.get("allOf", ())), "")
    found = _ZEROS_OF_COMPONENTS.get(reference.removeprefix(REF_PREFIX))
    return _ZEROS.get(field.get("type", "")) if found is None else found
