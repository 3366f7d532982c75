"""Removing what an applier stopped applying.

apply calls it with the merged object. Invariant: a field goes only if the applier's last apply owned it, its
new one does not, and nobody else does; list items and declared structs go whole when that empties them of
owners, whatever defaults they still hold.
"""

from __future__ import annotations

from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.fieldset import EMPTY, LEAF, SELF, FieldSet, difference, intersection, union
from atoll.machinery.patch.managedfields.managers import ManagedFieldsEntry, Owners
from atoll.machinery.patch.managedfields.options import Versions
from atoll.machinery.patch.structuredmerge.fieldset_builder import to_set
from atoll.machinery.patch.structuredmerge.merge import remove_items
from atoll.machinery.patch.structuredmerge.topology import Type


def prune(merged: Object, owners: Owners, last: ManagedFieldsEntry, versions: Versions) -> Object:
    """The merged object without what `last` owned and nobody in `owners` (the new apply among them) does.

    Where fields are recorded in other versions, each is judged in its own; a version that is gone keeps its
    fields.
    """
    version = last.manager.api_version
    schema = versions.schema(version)
    if schema is None:
        return merged
    root = schema.root
    before = versions.convert(merged, version)
    ours = _with_declared_fields(last.fields, root)
    left = remove_items(before, ours, root)
    left = _add_back_owned(merged, left, version, owners, versions)
    kept = _with_declared_fields(to_set(versions.convert(left, version), root), root)
    gone = intersection(difference(_with_declared_fields(to_set(before, root), root), kept), ours)
    return versions.convert(remove_items(before, gone, root), versions.own)


def _add_back_owned(merged: Object, left: Object, version: str, owners: Owners, versions: Versions) -> Object:
    """Undo removals of what anybody owns: first in the version that was pruned, so that converting works."""
    by_version: dict[str, FieldSet] = {}
    for entry in owners.values():
        known = by_version.get(entry.manager.api_version, EMPTY)
        by_version[entry.manager.api_version] = union(known, entry.fields)
    for owned_in in sorted(by_version, key=lambda name: (name != version, name)):
        schema = versions.schema(owned_in)
        if schema is None:
            continue
        root = schema.root
        whole = versions.convert(merged, owned_in)
        kept = to_set(versions.convert(left, owned_in), root)
        keep = union(_with_declared_fields(kept, root), _with_declared_fields(by_version[owned_in], root))
        removable = difference(_with_declared_fields(to_set(whole, root), root), keep)
        left = remove_items(whole, removable, root)
    return left


def _with_declared_fields(fields: FieldSet, type: Type) -> FieldSet:
    """The set with every declared field on the way to a member being a member too.

    So a struct goes when all that was applied in it goes, and stays while anything in it is owned.
    """
    out: FieldSet = {}
    for element, node in fields.items():
        if not node:
            out[element] = node
            continue
        is_field = element[0] == "f"
        child = type.field(element[2:]) if is_field else type.element
        inner = _with_declared_fields(node, child) if child is not None else node
        if is_field and SELF not in inner and type.declares(element[2:]):
            inner = {SELF: LEAF, **inner}
        out[element] = inner
    return out
