"""The components that custom kinds add to OpenAPI v3 documents.

`apiserver` puts documents together, paths included; this gives the schemas, and `kinds.custom` names them. A schema
is published as its definition has it, beside what every object has.
"""

from __future__ import annotations

from atoll.machinery.meta.objects import Object

_META = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1."
_API_VERSION: Object = {
    "description": "Version of the schema that this object follows: `group/version`, or `v1` in the core group.",
    "type": "string",
}
_KIND: Object = {"description": "Name of the kind that this object is of, in CamelCase.", "type": "string"}
_OBJECT_META: Object = {"description": "Metadata that every object has.", "allOf": [{"$ref": _META + "ObjectMeta"}]}
_LIST_META: Object = {"description": "Metadata that every list has.", "allOf": [{"$ref": _META + "ListMeta"}]}


def component_name(group: str, version: str, kind: str) -> str:
    """`com.example.stable.v1.CronTab`: the group reversed, version, kind."""
    return ".".join([*reversed(group.split(".")), version, kind] if group else [version, kind])


def crd_components(group: str, version: str, kind: str, list_kind: str, schema: Object) -> dict[str, Object]:
    """The schemas of a custom kind and of its list, by component name. `schema` is left unchanged."""
    name = component_name(group, version, kind)
    return {
        name: _object_schema(group, version, kind, schema),
        component_name(group, version, list_kind): _list_schema(group, version, list_kind, name),
    }


def _object_schema(group: str, version: str, kind: str, schema: Object) -> Object:
    properties = schema.get("properties") or {}
    metadata = properties.get("metadata")
    # What a definition says of metadata stays: it may bound names.
    bounds = {key: value for key, value in (metadata or {}).items() if key in ("properties", "required")}
    return {
        **schema,
        "type": "object",
        "properties": {
            **properties,
            "apiVersion": {**_API_VERSION, **properties.get("apiVersion", {})},
            "kind": {**_KIND, **properties.get("kind", {})},
            "metadata": {**_OBJECT_META, **bounds},
        },
        "x-kubernetes-group-version-kind": [_gvk(group, version, kind)],
    }


def _list_schema(group: str, version: str, list_kind: str, item: str) -> Object:
    kind = list_kind.removesuffix("List")
    return {
        "description": f"{list_kind} is a list of {kind}.",
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": _API_VERSION,
            "kind": _KIND,
            "metadata": _LIST_META,
            "items": {
                "description": "The objects.",
                "type": "array",
                "items": {"allOf": [{"$ref": f"#/components/schemas/{item}"}]},
            },
        },
        "x-kubernetes-group-version-kind": [_gvk(group, version, list_kind)],
    }


def _gvk(group: str, version: str, kind: str) -> Object:
    return {"group": group, "version": version, "kind": kind}
