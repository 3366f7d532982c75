"""Schemas of custom kinds in OpenAPI documents: v3 components and v2 definitions.

`apiserver.openapi` assembles the documents and their paths; `kinds.custom` names the schemas. v3 publishes the
structural schemas of definitions nearly verbatim; v2 omits keywords that it lacks (`openapi_v2`). Invariant: sources
are not modified.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from atoll.machinery.meta.objects import Object
from atoll.machinery.schema.openapi_v2 import EMBEDDED, INT_OR_STRING, PREFIX_V2, PRESERVE, to_v2

_PREFIX_V3 = "#/components/schemas/"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_GVK = "x-kubernetes-group-version-kind"
_SELECTABLE = "x-kubernetes-selectable-fields"
_API_VERSION: Object = {
    "description": "APIVersion defines the schema this object follows: `group/version`, or `v1` in the core group.",
    "type": "string",
}
_KIND: Object = {"description": "Name of the kind that this object is of, in CamelCase.", "type": "string"}
#: The conformance suite looks for these texts, and that of apiVersion, in the output of `kubectl explain`.
_OBJECT_META = "Standard object's metadata, which every object has."
_LIST_META = "Metadata that every list has."
_EITHER: list[Object] = [{"type": "integer"}, {"type": "string"}]

#: Make a reference to a component, with the other keywords of the place.
_Reference = Callable[[str, Object], Object]


def component_name(group: str, version: str, kind: str) -> str:
    """Return a name such as `com.example.stable.v1.CronTab`: the group reversed, version, kind."""
    return ".".join([*reversed(group.split(".")), version, kind] if group else [version, kind])


def crd_components(
    group: str, version: str, kind: str, list_kind: str, schema: Object, selectable: Sequence[str] = ()
) -> dict[str, Object]:
    """Return the v3 schemas of a custom kind and of its list, by component name. `schema` is not modified.

    `selectable` are the fields that field selectors may name, as dotted paths.
    """
    name = component_name(group, version, kind)
    own = _with_type(_unfolded(schema, _reference_v3), schema, _reference_v3)
    listed = _list_schema(kind, list_kind, name, _reference_v3)
    return {
        name: _marked(own, group, version, kind, selectable),
        component_name(group, version, list_kind): _marked(listed, group, version, list_kind, selectable),
    }


def crd_definitions(
    group: str, version: str, kind: str, list_kind: str, schema: Object, selectable: Sequence[str] = ()
) -> dict[str, Object]:
    """Return the v2 schemas of a custom kind and of its list, by definition name. `schema` is not modified.

    A schema that preserves unknown fields at its root becomes an object without properties: old kubectl rejects every
    field that a schema does not name.
    """
    name = component_name(group, version, kind)
    own: Object = {"type": "object"}
    if schema.get(PRESERVE) is not True:
        own = _with_type(_unfolded(to_v2(schema), _reference_v2), schema, _reference_v2)
    listed = _list_schema(kind, list_kind, name, _reference_v2)
    return {
        name: _marked(own, group, version, kind, selectable),
        component_name(group, version, list_kind): _marked(listed, group, version, list_kind, selectable),
    }


def _reference_v3(name: str, beside: Object) -> Object:
    return {**beside, "allOf": [{"$ref": _PREFIX_V3 + name}]} if beside else {"$ref": _PREFIX_V3 + name}


def _reference_v2(name: str, beside: Object) -> Object:
    return {**beside, "$ref": PREFIX_V2 + name}


def _with_type(published: Object, source: Object, reference: _Reference) -> Object:
    """Return a published schema with the fields of every object: apiVersion, kind, metadata."""
    properties = published.get("properties") or {}
    declared = source.get("properties") or {}
    # The declarations of metadata stay: they may bound names.
    metadata = declared.get("metadata") or {}
    bounds = {key: value for key, value in metadata.items() if key in ("properties", "required")}
    return {
        **published,
        "type": "object",
        "properties": {
            **properties,
            "apiVersion": {**_API_VERSION, **properties.get("apiVersion", {})},
            "kind": {**_KIND, **properties.get("kind", {})},
            "metadata": reference(
                _META + "ObjectMeta", {"description": _OBJECT_META, **(bounds if reference is _reference_v3 else {})}
            ),
        },
    }


def _list_schema(kind: str, list_kind: str, item: str, reference: _Reference) -> Object:
    return {
        "description": f"{list_kind} is a list of {kind}.",
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": _API_VERSION,
            "kind": _KIND,
            "metadata": reference(_META + "ListMeta", {"description": _LIST_META}),
            "items": {"description": "The objects.", "type": "array", "items": reference(item, {})},
        },
    }


def _marked(schema: Object, group: str, version: str, kind: str, selectable: Sequence[str]) -> Object:
    marked = {**schema, _GVK: [{"group": group, "version": version, "kind": kind}]}
    if selectable:
        marked[_SELECTABLE] = [{"fieldPath": path} for path in selectable]
    return marked


def _unfolded(schema: Object, reference: _Reference) -> Object:
    """Return a schema with its markers expanded to plain keywords; parts without markers are shared, not copied.

    int-or-string gets its `anyOf`; an embedded resource gets the fields of every object, unless v2 clients would then
    reject the fields that it preserves.
    """
    expanded = _with_children(schema, lambda child: _unfolded(child, reference))
    if schema.get(INT_OR_STRING) is True and reference is _reference_v3:
        expanded = _either(expanded)
    if schema.get(EMBEDDED) is True and (reference is _reference_v3 or schema.get(PRESERVE) is not True):
        required = expanded.get("required") or []
        expanded = {
            **_with_type(expanded, {}, reference),
            "required": [*required, *(name for name in ("kind", "apiVersion") if name not in required)],
        }
    return expanded


def _with_children(schema: Object, change: Callable[[Object], Object]) -> Object:
    changed: Object = {}
    properties: Any = schema.get("properties")
    if isinstance(properties, dict):
        made = {name: change(child) if isinstance(child, dict) else child for name, child in properties.items()}
        if any(made[name] is not child for name, child in properties.items()):
            changed["properties"] = made
    for key in ("items", "additionalProperties"):
        child: Any = schema.get(key)
        if isinstance(child, dict) and (one := change(child)) is not child:
            changed[key] = one
    return {**schema, **changed} if changed else schema


def _either(schema: Object) -> Object:
    junctors: Any = schema.get("anyOf")
    every: Any = schema.get("allOf")
    first = every[0] if isinstance(every, list) and every else {}
    if junctors == _EITHER or (isinstance(first, dict) and first.get("anyOf") == _EITHER):
        return schema
    if junctors is None:
        return {**schema, "anyOf": _EITHER}
    return {**schema, "allOf": [{"anyOf": _EITHER}, *(every if isinstance(every, list) else [])]}
