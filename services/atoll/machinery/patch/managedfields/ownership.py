"""Ownership after a change of the object: the step that `update` and `apply` share.

Invariants: a changed field has no owner but the writer; a removed field has none; an entry whose version is no longer
served, or that owns nothing, is dropped.
"""

from __future__ import annotations

from typing import NamedTuple

from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.fieldset import EMPTY, LEAF, SELF, FieldSet, difference, intersection
from atoll.machinery.patch.managedfields.conflicts import FieldManagerConflict
from atoll.machinery.patch.managedfields.managers import ManagerKey, Owners
from atoll.machinery.patch.managedfields.options import NO_RESET, ResetFields, Versions
from atoll.machinery.patch.structuredmerge.comparison import Comparison, compare_owned
from atoll.machinery.patch.structuredmerge.topology import ATOMIC, Type
from atoll.machinery.process.time_slicing import checkpoint


class VersionedChanges:
    """The differences between two states of an object in each version of its owners; computed on first use."""

    def __init__(self, live: Object, new: Object, versions: Versions, reset: ResetFields) -> None:
        self._live, self._new = live, new
        self._versions = versions
        self._reset = reset
        self._comparisons: dict[str, Comparison | None] = {}

    def at(self, api_version: str) -> Comparison | None:
        """Return the comparison in a version, without unowned fields; None when that version is no longer served."""
        try:
            return self._comparisons[api_version]
        except KeyError:
            found = self._comparisons[api_version] = self._compare(api_version)
            return found

    @property
    def own(self) -> Comparison:
        """The comparison in the request's version."""
        comparison = self._comparisons.get(self._versions.own) or self.at(self._versions.own)
        assert comparison is not None, "the version of a request is served"
        return comparison

    def _compare(self, api_version: str) -> Comparison | None:
        schema = self._versions.schema(api_version)
        if schema is None:
            return None
        live, new = self._live, self._new
        if self._versions.are_converted:
            live, new = self._versions.convert(live, api_version), self._versions.convert(new, api_version)
        compared = compare_owned(live, new, schema.root)
        return compared if self._reset is NO_RESET else self._reset.filter_all(compared)


class OwnershipTransfer(NamedTuple):
    """Owners after a change, and the changed fields that other managers owned before it."""

    owners: Owners
    conflicts: list[FieldManagerConflict]


def without_changes(owners: Owners, changes: VersionedChanges, writer: ManagerKey) -> Owners:
    """Take changed fields from every owner but `writer`, and removed ones from all."""
    remaining: Owners = {}
    for key, entry in owners.items():
        comparison = changes.at(entry.manager.api_version)
        if comparison is None:
            continue
        if key == writer and not comparison.removed:
            remaining[key] = entry
            continue
        fields = entry.fields if key == writer else difference(entry.fields, comparison.touched)
        fields = difference(fields, comparison.removed)
        if fields:
            remaining[key] = entry.owning(fields)
    return remaining


def transfer_ownership(owners: Owners, changes: VersionedChanges, writer: ManagerKey) -> OwnershipTransfer:
    """Take changed and removed fields from every owner but `writer`, whose entry stays as it is."""
    remaining: Owners = {}
    conflicts: list[FieldManagerConflict] = []
    for key, entry in owners.items():
        if key == writer:
            remaining[key] = entry
            continue
        comparison = changes.at(entry.manager.api_version)
        if comparison is None:
            continue
        touched = comparison.touched
        conflict = intersection(entry.fields, touched)
        if conflict:
            conflicts.append(FieldManagerConflict(entry, conflict))
        fields = difference(difference(entry.fields, touched), comparison.removed)
        if fields:
            remaining[key] = entry.owning(fields)
    return OwnershipTransfer(remaining, conflicts)


def reconcile_with_schema(owners: Owners, versions: Versions, sound: FieldSet = EMPTY) -> Owners:
    """Return the owners under the current schema: places that became atomic are owned as a whole.

    Entries of versions that are no longer served are dropped. `sound` is a set made by the current schema; an entry
    equal to it is not walked.
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
    checkpoint()
    out = fields
    for element, node in fields.items():
        if not node or element == SELF:
            continue
        child = type.field(element[2:]) if element[0] == "f" else type.element
        if child is None:
            continue
        reconciled = LEAF if child.merge == ATOMIC else _reconciled_fields(node, child)
        if reconciled is not node:
            if out is fields:
                out = dict(fields)
            out[element] = reconciled
    return out
