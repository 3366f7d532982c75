"""Associated objects: what an edge cluster makes of a placed object, such as the Pods of a Deployment, as rules.

StatusCollectors declare them, SyncerConfigs pass them on as `spec.associated`, syncers follow the kinds that they name.
Pure. Invariant: a rule relates objects by owners, by a label or by a field, and by one of these alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from atoll.machinery.edge.json_paths import BadPath, Budget, OverBudget, Path, parse, values
from atoll.machinery.edge.names import SOURCES, ObjectRef
from atoll.machinery.edge.placements import DownsyncTest, downsync_test
from atoll.machinery.meta.objects import Object, annotations_of, labels_of
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import invalid

Kind: TypeAlias = tuple[str, str]

DEFAULT_MAX_OBJECTS = 10
#: What a SyncerConfig has of one collector, as JSON.
MAX_ROW_BYTES = 64 * 1024
#: Most steps of a path, and characters of a value that it gives.
_STEPS, MAX_VALUE = 1000, 63


class Field(msgspec.Struct, frozen=True):
    """A value of an associated object that is told beside it."""

    name: str
    path: Path


class Rule(msgspec.Struct, frozen=True):
    """One kind of associated objects.

    `owners` are the kinds between, from the placed object on. `label` of an associated object has the name of the
    placed one, in its namespace; `field` of the placed one has the names of associated ones.
    """

    group: str
    resource: str
    owners: tuple[Kind, ...] = ()
    label: str = ""
    field: Path | None = None
    fields: tuple[Field, ...] = ()
    max_objects: int = DEFAULT_MAX_OBJECTS
    #: The first `max_objects` of a placed object come up whole.
    copies: bool = False

    @property
    def kind(self) -> Kind:
        """Group and resource."""
        return self.group, self.resource


class AssociatedQuery(msgspec.Struct, frozen=True):
    """What one StatusCollector asks for: rules, for the objects of its workspace that it is about.

    Without `source` it is about objects of all workspaces, without `targets` about all objects.
    """

    source: str
    targets: tuple[DownsyncTest, ...]
    rules: tuple[Rule, ...]

    def covers(self, group: str, resource: str) -> bool:
        """Whether it may be about objects of a kind."""
        return not self.targets or any(each.covers(group, resource) for each in self.targets)

    def copies(self, group: str, resource: str) -> bool:
        """Whether objects of a kind come up whole."""
        return any(each.copies and each.kind == (group, resource) for each in self.rules)

    def concerns(self, ref: ObjectRef, copy: Object) -> bool:
        """Whether it is about an object, by its copy in the mailbox."""
        if self.source and self.source not in annotations_of(copy).get(SOURCES, "").split(","):
            return False
        return not self.targets or any(each.matches(ref, labels_of(copy), {}) for each in self.targets)


def rules_of(rows: Sequence[Object], path: str, errors: list[FieldError]) -> tuple[Rule, ...]:
    """Decode the rules of a collector; what is wrong with them is added to `errors`."""
    return tuple(_rule(each, f"{path}[{index}]", errors) for index, each in enumerate(rows))


def _rule(row: Object, at: str, errors: list[FieldError]) -> Rule:
    fields = [
        Field(each["name"], path)
        for index, each in enumerate(row.get("fields") or ())
        if (path := _path(each["path"], f"{at}.fields[{index}].path", errors)) is not None
    ]
    return Rule(
        row.get("apiGroup") or "",
        row["resource"],
        tuple((each.get("apiGroup") or "", each["resource"]) for each in row.get("owners") or ()),
        row.get("label") or "",
        _path(row["field"], f"{at}.field", errors) if row.get("field") else None,
        tuple(fields),
        row.get("maxObjects") or DEFAULT_MAX_OBJECTS,
        bool(row.get("copies")),
    )


def _path(text: str, at: str, errors: list[FieldError]) -> Path | None:
    try:
        return parse(text)
    except BadPath as error:
        errors.append(invalid(at, text, str(error)))
        return None


def query_row(source: str, spec: Object) -> Object:
    """Return what a SyncerConfig has of a collector."""
    return {"source": source, "target": spec.get("target") or [], "objects": spec["associated"]}


def query_of(row: Object) -> AssociatedQuery | None:
    """Decode a row of a SyncerConfig, None if it is not valid: somebody else wrote it."""
    errors: list[FieldError] = []
    targets = tuple(downsync_test(each, "target", errors) for each in row.get("target") or ())
    found = AssociatedQuery(row.get("source") or "", targets, rules_of(row.get("objects") or (), "objects", errors))
    return None if errors else found


def texts_at(obj: Object, path: Path) -> list[str]:
    """Return the texts and numbers that a path selects, cut to MAX_VALUE characters; none where it takes too long."""
    try:
        found = values(obj, path, Budget(_STEPS, 0))
    except OverBudget:
        return []
    return [_text(each)[:MAX_VALUE] for each in found if isinstance(each, str | int | float)]


def names_at(obj: Object, path: Path) -> list[str]:
    """Return the names that a path selects."""
    try:
        found = values(obj, path, Budget(_STEPS, 0))
    except OverBudget:
        return []
    return [each for each in found if isinstance(each, str) and each]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def field_values(obj: Object, fields: Sequence[Field]) -> Mapping[str, str]:
    """Return the values of fields that an object has."""
    return {each.name: ",".join(found)[:MAX_VALUE] for each in fields if (found := texts_at(obj, each.path))}
