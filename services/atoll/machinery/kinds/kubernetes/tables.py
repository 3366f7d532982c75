"""The data of `schemas/native/kubernetes`, read on first use: a row for each kind, and the components of their schemas.

Components have the descriptions and the defaults of this project's own tables; those that built-in kinds have too are
the same values. Invariant: everything returned is shared and immutable.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from atoll.machinery.kinds.native_schemas import REF_PREFIX, definitions
from atoll.machinery.meta.objects import Object
from atoll.machinery.process.resources import schema_path

#: Key of what holds for every kind.
_ALL = "*"
_KINDS = "x-kubernetes-group-version-kind"
_LIST_META = REF_PREFIX + "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"


class PrintedColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A column of kube-apiserver's table. Those with priority > 0 appear with -o wide only."""

    name: str
    type: str
    format: str = ""
    priority: int = 0


class Version(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A version of a kind: its component, and its verbs and those of its subresources, separated by spaces."""

    name: str
    verbs: str
    component: str
    subresources: dict[str, str] = {}


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A kind. `versions` are in order of preference; the first is stored."""

    group: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    versions: list[Version]
    columns: list[PrintedColumn]
    short_names: list[str] = []
    categories: list[str] = []

    @property
    def name(self) -> str:
        """`<plural>.<group>`, with `core` for the empty group."""
        return f"{self.plural}.{self.group or 'core'}"


class Cell(msgspec.Struct, frozen=True):
    """How the cell of a column comes from an object.

    Either `path`, a JSONPath with a leading dot and the text for an absent value, or the name of an accessor.
    """

    path: str = ""
    absent: str = ""
    accessor: str = ""


class _Kinds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    #: Of Kubernetes, such as 1.36.3.
    version: str
    kinds: list[Row]


@cache
def _kinds() -> _Kinds:
    return msgspec.json.decode(_path("kinds.json").read_bytes(), type=_Kinds)


def kubernetes_version() -> str:
    """Return the version of Kubernetes whose kinds these are, such as 1.36.3."""
    return _kinds().version


@cache
def rows() -> Mapping[str, Row]:
    """Return the kinds by `Row.name`."""
    return MappingProxyType({row.name: row for row in _kinds().kinds})


@cache
def components() -> Mapping[str, Object]:
    """Return all components by name, such as `io.k8s.api.apps.v1.Deployment`, those of lists and of built-in kinds
    included."""
    found: dict[str, Object] = {}
    for path in sorted(_path("openapi").glob("*.json")):
        found.update(msgspec.json.decode(path.read_bytes(), type=dict[str, Object]))
    for name, values in _table("defaults.json").items():
        for field, value in values.items():
            properties = found[name]["properties"]
            properties[field] = _beside(properties[field], "default", value)
    for row in _kinds().kinds:
        for version in row.versions:
            _describe(found[version.component], row.kind)
            found[version.component][_KINDS] = [{"group": row.group, "kind": row.kind, "version": version.name}]
            found[version.component + "List"] = _list_of(row, version)
    return MappingProxyType({**definitions(), **found})


def cell(kind: str, column: str) -> Cell:
    """Return the cell of a column. Raises KeyError for an unknown one."""
    cells = _table("cells.json")
    text = cells.get(kind, {}).get(column) or cells[_ALL][column]
    if not text.startswith("."):
        return Cell(accessor=text)
    path, _, absent = text.partition("|")
    return Cell(path, absent)


@cache
def _table(name: str) -> dict[str, dict[str, Any]]:
    return msgspec.json.decode(_path(name).read_bytes(), type=dict[str, dict[str, Any]])


def _path(name: str) -> Path:
    return schema_path("native", "kubernetes", name)


def _describe(component: Object, kind: str) -> None:
    texts = _table("descriptions.json")
    own = texts[kind]
    component["description"] = own[""]
    for field, source in component["properties"].items():
        component["properties"][field] = _beside(source, "description", own.get(field) or texts[_ALL][field])


def _list_of(row: Row, version: Version) -> Object:
    """Return the component of a list of a kind."""
    text = {"type": "string"}
    return {
        "description": f"A list of {row.kind} objects.",
        "type": "object",
        "properties": {
            "apiVersion": {"description": "Group and version of the schema that this object follows.", **text},
            "kind": {"description": "Kind of the object, in CamelCase.", **text},
            "metadata": {"description": "Facts about the list as a whole.", "allOf": [{"$ref": _LIST_META}]},
            "items": {
                "description": "The objects.",
                "type": "array",
                "items": {"$ref": REF_PREFIX + version.component},
            },
        },
        "required": ["items"],
        _KINDS: [{"group": row.group, "kind": row.kind + "List", "version": version.name}],
    }


def _beside(source: Object, key: str, value: Any) -> Object:
    """Return a schema with one more keyword; OpenAPI does not allow any beside a reference."""
    return {"allOf": [source], key: value} if "$ref" in source else {**source, key: value}
