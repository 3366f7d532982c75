"""Declarations that built-in kinds share: names, schema, common columns and cells.

The file of each kind calls `builtin` for the fields that follow from group and kind, and adds its own hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypedDict

from atoll.machinery.kinds.checks import mapping, text
from atoll.machinery.kinds.kind import Column
from atoll.machinery.kinds.native_schemas import NativeSchema
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.times import age

API_EXTENSIONS = "api-extensions"

_PACKAGES = {
    "": "io.k8s.api.core.v1",
    "events.k8s.io": "io.k8s.api.events.v1",
    "authentication.k8s.io": "io.k8s.api.authentication.v1",
    "authorization.k8s.io": "io.k8s.api.authorization.v1",
    "rbac.authorization.k8s.io": "io.k8s.api.rbac.v1",
    "coordination.k8s.io": "io.k8s.api.coordination.v1",
    "certificates.k8s.io": "io.k8s.api.certificates.v1",
    "admissionregistration.k8s.io": "io.k8s.api.admissionregistration.v1",
    "apiextensions.k8s.io": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1",
}

Cell = Callable[[Object, float], object]


class Names(TypedDict):
    """The fields of a Kind that follow from its group and kind."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    storage_version: str
    schema: NativeSchema
    schema_name: str
    description: str
    builtin: bool


def builtin(group: str, kind: str, plural: str, open_values: Collection[str] = ()) -> Names:
    """Return names and schema of a built-in kind; all of them are served in v1 only."""
    name = f"{_PACKAGES[group]}.{kind}"
    schema = NativeSchema(name, open_values)
    return Names(
        group=group,
        version="v1",
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        storage_version="v1",
        schema=schema,
        schema_name=name,
        description=schema.source["description"],
        builtin=True,
    )


NAME = Column("Name", "string", "name", "Name of the object.")
AGE = Column("Age", "string", "", "How long ago the object was created.")
CREATED_AT = Column("Created At", "date", "", "When the object was created.")


def name_cell(obj: Object, now_s: float) -> object:
    return text(obj, "metadata", "name")


def age_cell(obj: Object, now_s: float) -> object:
    return age(mapping(obj, "metadata").get("creationTimestamp"), now_s)


def created_cell(obj: Object, now_s: float) -> object:
    """Return the creation time itself, not an age."""
    return text(obj, "metadata", "creationTimestamp")


def text_cell(*path: str) -> Cell:
    """Return a cell with the text at a path."""
    return lambda obj, now_s: text(obj, *path)


def row(*cells: Cell) -> Callable[[Object, float], list[object]]:
    """Return the cells of a row, in the order of the kind's columns."""
    return lambda obj, now_s: [cell(obj, now_s) for cell in cells]
