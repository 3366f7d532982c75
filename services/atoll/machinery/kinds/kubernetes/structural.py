"""A component as the structural schema of a definition: references are replaced, and marks of Kubernetes' own kinds go.

Definitions declare quantities and dates in a form of their own. Descriptions are those of the kind and its fields only.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from atoll.machinery.kinds.kubernetes.tables import components
from atoll.machinery.kinds.native_schemas import REF_PREFIX
from atoll.machinery.meta.objects import Object

_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_OPEN: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
#: Go's clients write null for a zero time.
_TIME: Object = {"type": "string", "format": "date-time", "nullable": True}
_NUMBER = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
#: What a definition declares for these, instead of what Kubernetes publishes.
_FORMS: Mapping[str, Object] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {
        "pattern": rf"^(\+|-)?{_NUMBER}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?{_NUMBER}))?$",
        "x-kubernetes-int-or-string": True,
    },
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"x-kubernetes-int-or-string": True},
    "io.k8s.apimachinery.pkg.runtime.RawExtension": _OPEN,
    _META + "FieldsV1": _OPEN,
    _META + "Time": _TIME,
    _META + "MicroTime": _TIME,
}
_DROPPED = frozenset(
    {"allOf", "$ref", "description", "x-kubernetes-patch-strategy", "x-kubernetes-patch-merge-key"}
    | {"x-kubernetes-group-version-kind"}
)


def structural(component: str) -> Object:
    """Return the structural schema of the kind that a component describes. Equal parts are the same value."""
    source = components()[component]
    fields: Object = {}
    for name, field in source["properties"].items():
        # The server declares metadata itself.
        described = {"description": field["description"], **_form(field)}
        fields[name] = {"type": "object"} if name == "metadata" else described
    return {"description": source["description"], **_form(source), "properties": fields}


@cache
def _component(name: str) -> Object:
    return _FORMS.get(name) or _form(components()[name])


def _form(source: Object) -> Object:
    found: Object = {key: value for key, value in source.items() if key not in _DROPPED}
    if reference := source.get("$ref") or next((each["$ref"] for each in source.get("allOf", ())), ""):
        found = {**_component(reference.removeprefix(REF_PREFIX)), **found}
        if found.get("default") == {} and found.get("required"):
            # The default of a definition has to be valid by itself.
            del found["default"]
    if "properties" in source:
        found["properties"] = {key: _form(value) for key, value in source["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(source.get(key), dict):
            found[key] = _form(source[key])
    if found.get("type") == "array":
        _complete_keys(found)
    else:
        found.pop("x-kubernetes-list-type", None)
    return found


def _complete_keys(form: Object) -> None:
    """Give a default to the optional keys of a list map, all of which are texts; a definition has to."""
    item: Object = form["items"]
    for key in form.get("x-kubernetes-list-map-keys", ()):
        if key not in item.get("required", ()) and "default" not in item["properties"][key]:
            field = {**item["properties"][key], "default": ""}
            form["items"] = item = {**item, "properties": {**item["properties"], key: field}}
