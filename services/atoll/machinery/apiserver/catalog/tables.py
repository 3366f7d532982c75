"""Objects as Tables and PartialObjectMetadata of meta.k8s.io, for `kubectl get` and metadata informers.

Verb handlers pass decoded objects. Cells are in column order; `object` follows the includeObject option.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from atoll.machinery.apiserver.catalog.printer_columns import cell
from atoll.machinery.kinds.kind import Column, Kind
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import BadRequest

_NAME = Column(
    "Name", "string", "name", "The name of the object, unique among its kind within its namespace or cluster."
)
_AGE = Column("Age", "date", "", "How long ago the object was created.", 0, ".metadata.creationTimestamp")
_INCLUDE = ("None", "Metadata", "Object")


def include_object(value: str) -> str:
    """Return the includeObject option; empty means Metadata."""
    if value and value not in _INCLUDE:
        raise BadRequest(f'Unable to convert to Table as requested: unrecognized includeObject value: "{value}"')
    return value or "Metadata"


def columns(kind: Kind) -> tuple[Column, ...]:
    """Return a kind's columns: Name first; Age if it declares none. Kinds with their own cells declare all columns."""
    own = kind.columns or (_AGE,)
    if kind.cells is not None:
        return own
    return own if own[0].name == "Name" else (_NAME, *own)


def column_definitions(kind: Kind) -> list[Object]:
    """`columnDefinitions` of a Table."""
    return [
        {"name": c.name, "type": c.type, "format": c.format, "description": c.description, "priority": c.priority}
        for c in columns(kind)
    ]


def row(kind: Kind, obj: Object, include: str, version: str) -> Object:
    """One row of a Table."""
    found: Object = {"cells": cells(kind, obj)}
    if include == "Object":
        found["object"] = obj
    elif include == "Metadata":
        found["object"] = partial(obj, version)
    else:
        found["object"] = None
    return found


def cells(kind: Kind, obj: Object) -> list[object]:
    """Cell values of one object."""
    now = time.time()
    if kind.cells is not None:
        return kind.cells(obj, now)
    return [_cell(column, obj, now) for column in columns(kind)]


def _cell(column: Column, obj: Object, now: float) -> object:
    if column is _NAME:
        return obj["metadata"].get("name", "")
    value = cell(column, obj, now)
    return "<unknown>" if value is None and column is _AGE else value


def table(kind: Kind, objects: Sequence[Object], metadata: Object, include: str, version: str) -> Object:
    """A Table of objects; `metadata` is the list's (or the object's resourceVersion)."""
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": metadata,
        "columnDefinitions": column_definitions(kind),
        "rows": [row(kind, obj, include, version) for obj in objects],
    }


def partial(obj: Object, version: str) -> Object:
    """PartialObjectMetadata of an object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{version}", "metadata": obj["metadata"]}
