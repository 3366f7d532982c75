"""Remove the fields that an applier no longer applies.

`apply` calls it with the merged object. Invariant: a field is removed only if the manager's last apply owned it, the
new one does not, and no other manager does; list items and declared structs without an owner left are removed as a
whole, with the defaults they hold.
"""

from __future__ import annotations

from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.fieldset import EMPTY, LEAF, SELF, FieldSet, difference, intersection, union
from atoll.machinery.patch.managedfields.managers import ManagedFieldsEntry, Owners
from atoll.machinery.patch.managedfields.options import Versions
from atoll.machinery.patch.structuredmerge.fieldset_builder import to_set
from atoll.machinery.patch.structuredmerge.merge import remove_items
from atoll.machinery.patch.structuredmerge.topology import Type
from atoll.machinery.process.time_slicing import checkpoint


def prune(merged: Object, owners: Owners, last: ManagedFieldsEntry, versions: Versions) -> Object:
    """Return the merged object without the fields that `last` owned and no entry of `owners` owns.

    `owners` includes the new apply. Fields of other versions are compared in their own version; fields of a version
    that is no longer served stay.
    """
    version = last.manager.api_version
    schema = versions.schema(version)
    if schema is None:
        return merged
    root = schema.root
    before = versions.convert(merged, version)
    last_fields = _with_declared_fields(last.fields, root)
    pruned = remove_items(before, last_fields, root)
    pruned = _add_back_owned(merged, pruned, version, owners, versions)
    remaining = _with_declared_fields(to_set(versions.convert(pruned, version), root), root)
    all_fields = _with_declared_fields(to_set(before, root), root)
    removed = intersection(difference(all_fields, remaining), last_fields)
    return versions.convert(remove_items(before, removed, root), versions.own)


def _add_back_owned(merged: Object, pruned: Object, version: str, owners: Owners, versions: Versions) -> Object:
    """Restore removed fields that have an owner: first in the version that was pruned, so that conversion works."""
    by_version: dict[str, FieldSet] = {}
    for entry in owners.values():
        fields = by_version.get(entry.manager.api_version, EMPTY)
        by_version[entry.manager.api_version] = union(fields, entry.fields)
    for owner_version in sorted(by_version, key=lambda name: (name != version, name)):
        schema = versions.schema(owner_version)
        if schema is None:
            continue
        root = schema.root
        whole = versions.convert(merged, owner_version)
        remaining = to_set(versions.convert(pruned, owner_version), root)
        keep = union(_with_declared_fields(remaining, root), _with_declared_fields(by_version[owner_version], root))
        removable = difference(_with_declared_fields(to_set(whole, root), root), keep)
        pruned = remove_items(whole, removable, root)
    return pruned


def _with_declared_fields(fields: FieldSet, type: Type) -> FieldSet:
    """Return the set with every declared ancestor of a member as a member too.

    A struct is therefore removed with the last of its applied fields, and stays while any of them is owned.
    """
    checkpoint()
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
