"""The step that update and apply share: what a change of the object does to everybody's fields.

Invariants: a field whose value changed has no owner left but the writer; a removed field has none at all; an
entry whose version is gone, or that owns nothing, is dropped.
"""

from __future__ import annotations

from typing import NamedTuple

from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.fieldset import EMPTY, LEAF, SELF, FieldSet, difference, intersection
from atoll.machinery.patch.managedfields.managers import ManagedFieldsEntry, ManagerKey, Owners
from atoll.machinery.patch.managedfields.options import ResetFields, Versions
from atoll.machinery.patch.structuredmerge.comparison import Comparison, compare
from atoll.machinery.patch.structuredmerge.topology import ATOMIC, Type


class VersionedChanges:
    """How an object changes, in each version somebody's fields are recorded in; compared on first use."""

    def __init__(self, live: Object, new: Object, versions: Versions, reset: ResetFields) -> None:
        self._live, self._new = live, new
        self._versions = versions
        self._reset = reset
        self._known: dict[str, Comparison | None] = {}

    def at(self, api_version: str) -> Comparison | None:
        """The comparison in a version, without what nobody owns; None when that version is gone."""
        if api_version not in self._known:
            self._known[api_version] = self._compare(api_version)
        return self._known[api_version]

    @property
    def own(self) -> Comparison:
        """The comparison in the request's version."""
        found = self.at(self._versions.own)
        assert found is not None, "the version of a request is served"
        return found

    def _compare(self, api_version: str) -> Comparison | None:
        schema = self._versions.schema(api_version)
        if schema is None:
            return None
        live = self._versions.convert(self._live, api_version)
        new = self._versions.convert(self._new, api_version)
        return self._reset.filter_all(compare(live, new, schema.root).owned())


class OwnershipTransfer(NamedTuple):
    """Owners after a change, and which of their fields the writer took from each."""

    owners: Owners
    taken: list[tuple[ManagedFieldsEntry, FieldSet]]


def transfer_ownership(
    owners: Owners, changes: VersionedChanges, writer: ManagerKey | None = None
) -> OwnershipTransfer:
    """Take changed and removed fields from everybody but `writer`, whose entry stays as it is."""
    left: Owners = {}
    taken: list[tuple[ManagedFieldsEntry, FieldSet]] = []
    for key, entry in owners.items():
        if key == writer:
            left[key] = entry
            continue
        comparison = changes.at(entry.manager.api_version)
        if comparison is None:
            continue
        touched = comparison.touched
        conflict = intersection(entry.fields, touched)
        if conflict:
            taken.append((entry, conflict))
        fields = difference(difference(entry.fields, touched), comparison.removed)
        if fields:
            left[key] = entry.owning(fields)
    return OwnershipTransfer(left, taken)


def reconcile_with_schema(owners: Owners, versions: Versions, sound: FieldSet = EMPTY) -> Owners:
    """Owners as the present schema sees them: what became atomic is owned whole, gone versions go.

    `sound` is a set that this very schema made: an entry that equals it is not walked.
    """
    out: Owners = {}
    for key, entry in owners.items():
        schema = versions.schema(entry.manager.api_version)
        if schema is None:
            continue
        if entry.manager.api_version == versions.own and entry.fields == sound:
            out[key] = entry
        else:
            out[key] = entry.owning(_reconciled_fields(entry.fields, schema.root))
    return out


def _reconciled_fields(fields: FieldSet, type: Type) -> FieldSet:
    out = fields
    for element, node in fields.items():
        if not node or element == SELF:
            continue
        child = type.field(element[2:]) if element[0] == "f" else type.element
        if child is None:
            continue
        better = LEAF if child.merge == ATOMIC else _reconciled_fields(node, child)
        if better is not node:
            if out is fields:
                out = dict(fields)
            out[element] = better
    return out
