"""OpenAPI v3 documents of one catalogue: an index, and one document a group version.

What `kubectl explain`, `apply` and field validation probes read: operations with their parameters and
x-kubernetes extensions, and the components of every kind served. Documents are made on first request from the
catalogue's shared schemas and kept with the catalogue.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

from atoll.machinery.apiserver.catalog import Catalog
from atoll.machinery.apiserver.discovery import Document
from atoll.machinery.kinds import native_schemas
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.schema.openapi import component_name, crd_components

_REFERENCE = "#/components/schemas/"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_PATCH_TYPES = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)


def key_of(group: str, version: str) -> str:
    """The key of a group version in the index: `api/v1`, `apis/apps/v1`."""
    return f"apis/{group}/{version}" if group else f"api/{version}"


def index(catalog: Catalog) -> Document:
    """`/openapi/v3`: where each group version's document is, by content hash."""
    paths = {
        key: {"serverRelativeURL": f"/openapi/v3/{key}?hash={group_version(catalog, key).etag}"}  # type: ignore[union-attr]
        for key in sorted(key_of(group, version) for group, version in catalog.versions)
    }
    body = encode_json({"paths": paths}) + b"\n"
    return Document(body, hashlib.sha512(body).hexdigest().upper())


def group_version(catalog: Catalog, key: str) -> Document | None:
    """`/openapi/v3/<key>`; None if it is not served."""
    found = next((each for each in catalog.versions if key_of(*each) == key), None)
    if found is None:
        return None
    return catalog.document(f"openapi:{key}", lambda: _made(catalog, *found))


def _made(catalog: Catalog, group: str, version: str) -> Document:
    kinds = [kind for kind in catalog.kinds.values() if (kind.group, kind.version) == (group, version)]
    components = Components()
    paths: Object = {}
    for kind in kinds:
        name, list_name = components.add(kind)
        paths.update(_paths(kind, name, list_name))
    value = {
        "openapi": "3.0.0",
        "info": {"title": "Atoll", "version": "v1"},
        "paths": paths,
        "components": {"schemas": components.schemas},
    }
    body = encode_json(value) + b"\n"
    return Document(body, hashlib.sha512(body).hexdigest().upper())


class Components:
    """The schemas a document needs, with everything they refer to."""

    def __init__(self) -> None:
        self.schemas: dict[str, Object] = {}
        self._native: Mapping[str, Object] = native_schemas.definitions()

    def add(self, kind: Kind) -> tuple[str, str]:
        """Add a kind and its list; gives their component names."""
        if kind.builtin:
            name = kind.schema_name
            self._need(name)
            list_name = name + "List"
            if list_name in self._native:
                self._need(list_name)
            else:
                list_name = ""
        else:
            name = component_name(kind.group, kind.version, kind.kind)
            list_name = component_name(kind.group, kind.version, kind.list_kind_name)
            source = kind.schema.source if kind.schema is not None else {"type": "object"}
            for each, schema in crd_components(
                kind.group, kind.version, kind.kind, kind.list_kind_name, source
            ).items():
                self.schemas[each] = schema
                self._follow(schema)
        for each in ("Status", "DeleteOptions", "Patch"):
            self._need(_META + each)
        if kind.subresource("scale") is not None:
            self._need("io.k8s.api.autoscaling.v1.Scale")
        return name, list_name

    def _need(self, name: str) -> None:
        if name in self.schemas or name not in self._native:
            return
        self.schemas[name] = self._native[name]
        self._follow(self._native[name])

    def _follow(self, schema: Object) -> None:
        for name in _references(schema):
            self._need(name)


def _references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        reference = value.get("$ref")
        if isinstance(reference, str) and reference.startswith(_REFERENCE):
            yield reference.removeprefix(_REFERENCE)
        for child in value.values():
            yield from _references(child)
    elif isinstance(value, list):
        for child in value:
            yield from _references(child)


# --- operations ------------------------------------------------------------------------------------------


def _paths(kind: Kind, name: str, list_name: str) -> Object:
    """Every path of a kind with its operations."""
    root = "/" + key_of(kind.group, kind.version)
    collection = f"{root}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"
    paths: Object = {collection: _collection(kind, name, list_name)}
    if kind.namespaced and "list" in kind.verbs:
        operation = _operation(kind, "list", list_name or name)
        paths[f"{root}/{kind.plural}"] = {"get": operation, "parameters": []}
    if "get" in kind.verbs:
        paths[f"{collection}/{{name}}"] = _item(kind, name, kind.verbs, "")
    for sub in kind.subresources:
        component = "io.k8s.api.autoscaling.v1.Scale" if sub.name == "scale" else name
        paths[f"{collection}/{{name}}/{sub.name}"] = _item(kind, component, sub.verbs, sub.name)
    return {path: operations for path, operations in paths.items() if len(operations) > 1}


def _place(kind: Kind, *names: str) -> list[Object]:
    wanted = (*(("namespace",) if kind.namespaced else ()), *names)
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "uniqueItems": True},
         "description": f"The {name} the request is about."}
        for name in wanted
    ]  # fmt: skip


def _collection(kind: Kind, name: str, list_name: str) -> Object:
    operations: Object = {"parameters": _place(kind)}
    if "list" in kind.verbs:
        operations["get"] = _operation(kind, "list", list_name or name)
    if "create" in kind.verbs:
        operations["post"] = _operation(kind, "post", name)
    if "deletecollection" in kind.verbs:
        operations["delete"] = _operation(kind, "deletecollection", _META + "Status")
    return operations


def _item(kind: Kind, component: str, verbs: tuple[str, ...], subresource: str) -> Object:
    operations: Object = {"parameters": _place(kind, "name")}
    for verb, method in _METHODS.items():
        if verb in verbs and (verb != "create" or subresource):
            result = component if verb != "delete" else _META + "Status"
            operations[method] = _operation(kind, method, result, subresource)
    return operations


_METHODS = {"get": "get", "update": "put", "patch": "patch", "create": "post", "delete": "delete"}
_QUERY = {
    "list": ("labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "resourceVersionMatch",
             "timeoutSeconds", "watch", "allowWatchBookmarks", "sendInitialEvents"),
    "post": ("dryRun", "fieldManager", "fieldValidation"),
    "put": ("dryRun", "fieldManager", "fieldValidation"),
    "patch": ("dryRun", "fieldManager", "fieldValidation", "force"),
    "delete": ("dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy"),
    "deletecollection": ("labelSelector", "fieldSelector", "limit", "continue", "dryRun", "propagationPolicy"),
    "get": (),
}  # fmt: skip
_BOOLEANS = ("watch", "allowWatchBookmarks", "sendInitialEvents", "force", "orphanDependents")
_INTEGERS = ("limit", "timeoutSeconds", "gracePeriodSeconds")


def _parameter(name: str) -> Object:
    kind = "boolean" if name in _BOOLEANS else "integer" if name in _INTEGERS else "string"
    return {"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": True}}


def _operation(kind: Kind, action: str, component: str, subresource: str = "") -> Object:
    reference = {"$ref": _REFERENCE + component}
    content = {"application/json": {"schema": reference}, "application/yaml": {"schema": reference}}
    sub = "".join(part.capitalize() for part in subresource.split("/") if part)
    operation: Object = {
        "operationId": f"{action}{kind.group.title().replace('.', '')}{kind.version.title()}{kind.kind}{sub}",
        "tags": [f"{kind.group or 'core'}_{kind.version}"],
        "parameters": [_parameter(name) for name in _QUERY[action]],
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
    }
    if action in {"post", "put"}:
        operation["requestBody"] = {"required": True, "content": {"*/*": {"schema": reference}}}
    if action == "patch":
        types = _PATCH_TYPES if kind.builtin else _PATCH_TYPES[:3]
        patch = {"schema": {"$ref": _REFERENCE + _META + "Patch"}}
        operation["requestBody"] = {"required": True, "content": dict.fromkeys(types, patch)}
    if action in {"delete", "deletecollection"}:
        options = {"schema": {"$ref": f"{_REFERENCE}{_META}DeleteOptions"}}
        operation["requestBody"] = {"content": {"*/*": options}}
    return operation


