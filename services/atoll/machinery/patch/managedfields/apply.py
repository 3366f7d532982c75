"""Server-side apply.

The PATCH handler calls `apply_patch` with the live object in the request's version and writes the result like an
update. Invariants: an applier owns exactly the fields of its last patch; a field with another owner changes only by
force; applying the same patch twice returns the object unchanged, timestamps included.
"""

from __future__ import annotations

from collections.abc import Sequence

from atoll.machinery.meta.equality import same
from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.errors import InvalidApplyPatch, UndecodablePatch
from atoll.machinery.patch.fieldset import FieldSet, difference
from atoll.machinery.patch.managedfields.conflicts import FieldManagerConflict, conflict_error
from atoll.machinery.patch.managedfields.last_applied import KUBECTL, client_applied_fields, refresh_annotation
from atoll.machinery.patch.managedfields.managers import (
    BEFORE_FIRST_APPLY,
    UPDATE,
    ManagedFieldsEntry,
    Manager,
    Owners,
    decode,
    set_managed_fields,
)
from atoll.machinery.patch.managedfields.options import ApplyOptions, Versions
from atoll.machinery.patch.managedfields.ownership import VersionedChanges, reconcile_with_schema, transfer_ownership
from atoll.machinery.patch.managedfields.pruning import prune
from atoll.machinery.patch.structuredmerge.comparison import UNOWNED_FIELDS
from atoll.machinery.patch.structuredmerge.fieldset_builder import SchemaMismatch, created_set, typed_set
from atoll.machinery.patch.structuredmerge.merge import merge
from atoll.machinery.patch.structuredmerge.topology import TypeSchema
from atoll.machinery.patch.structuredmerge.validation import typed_patch_error


def apply_patch(
    live: Object | None, patch: Object, manager: Manager, schema: TypeSchema, options: ApplyOptions
) -> Object:
    """Return the live object with the patch applied by `manager`, managedFields included; the patch if live is None.

    The result has metadata of its own; other parts may be shared with both inputs, which are not modified.
    `manager.operation` must be Apply. Raises InvalidApplyPatch (another version, managedFields in the patch),
    TypedPatchError (the patch does not fit the schema), ApplyConflict (fields of other managers, without force).
    """
    _check_patch(patch, manager)
    try:
        return _ApplyOperation(live, patch, manager, schema, options).result()
    except SchemaMismatch:
        raise typed_patch_error(patch, schema.root) from None
    except RecursionError:
        raise UndecodablePatch("error decoding YAML: exceeded max depth") from None


def _check_patch(patch: Object, manager: Manager) -> None:
    version = patch.get("apiVersion")
    if version != manager.api_version:
        text = "Incorrect version specified in apply patch."
        raise InvalidApplyPatch(f"{text} Specified patch version: {version}, expected: {manager.api_version}")
    if not isinstance(patch.get("metadata"), dict):
        raise InvalidApplyPatch("metadata is required in an apply patch")
    if patch["metadata"].get("managedFields") is not None:
        raise InvalidApplyPatch("metadata.managedFields must be nil")


class _ApplyOperation:
    """One apply. `result` calls the steps in order."""

    def __init__(
        self, live: Object | None, patch: Object, manager: Manager, schema: TypeSchema, options: ApplyOptions
    ) -> None:
        self.exists = live is not None
        empty: Object = {"apiVersion": patch["apiVersion"], "kind": patch.get("kind"), "metadata": {}}
        self.live = live if live is not None else empty
        self.patch = patch
        self.manager = manager
        self.root = schema.root
        self.options = options
        self.versions = Versions(manager.api_version, schema, options)

    def result(self) -> Object:
        """Return the new object. Raises SchemaMismatch, ApplyConflict."""
        # Pruning compares all fields of the patch; fields without an owner are not recorded.
        applied = self.options.reset.filter(typed_set(self.patch, self.root))
        owned = difference(applied, UNOWNED_FIELDS)
        stored = decode(self.live["metadata"].get("managedFields"))
        owners = reconcile_with_schema(stored or self._before_first_apply(), self.versions, owned)
        last = owners.get(self.manager.key)
        merged = merge(self.live, self.patch, self.root)
        if last is not None and difference(last.fields, applied):
            with_new = {**owners, self.manager.key: ManagedFieldsEntry(self.manager, "", applied)}
            merged = prune(merged, with_new, last, self.versions)
        changes = VersionedChanges(self.live, merged, self.versions, self.options.reset)
        transfer = transfer_ownership(owners, changes, self.manager.key)
        if transfer.conflicts and not self.options.force:
            self._raise_conflicts(transfer.conflicts)
        # The order of items is part of the object, although it is not a field.
        is_changed = not same(self.live, merged)
        owners = self._with_own_entry(transfer.owners, owned, last, is_changed)
        return self._finished(dict(merged), owners)

    def _before_first_apply(self) -> Owners:
        """Return the owner of an untracked object: one synthetic manager owns all fields, so that apply conflicts."""
        if not self.exists:
            return {}
        manager = Manager(BEFORE_FIRST_APPLY, UPDATE, self.manager.api_version, self.manager.subresource)
        fields = self.options.reset.filter(created_set(self.live, self.root))
        return {manager.key: ManagedFieldsEntry(manager, self.options.now, fields)} if fields else {}

    def _raise_conflicts(self, conflicts: Sequence[FieldManagerConflict]) -> None:
        """Raise ApplyConflict; kubectl may take the fields that it wrote itself by client-side apply."""
        if self.manager.name == KUBECTL:
            waived = client_applied_fields(self.live, self.root)
            remaining = (FieldManagerConflict(entry, difference(fields, waived)) for entry, fields in conflicts)
            conflicts = [conflict for conflict in remaining if conflict.fields]
        if conflicts:
            raise conflict_error(conflicts)

    def _with_own_entry(
        self, owners: Owners, fields: FieldSet, last: ManagedFieldsEntry | None, is_changed: bool
    ) -> Owners:
        """Return the owners with this manager's new entry.

        Its time is that of the manager's last apply that changed the object, empty if none did, as in Kubernetes.
        """
        if not fields:
            return {key: entry for key, entry in owners.items() if key != self.manager.key}
        if last is not None and not is_changed and last.fields == fields and last.manager == self.manager:
            return {**owners, self.manager.key: last}
        time = self.options.now if is_changed else last.time if last is not None else ""
        return {**owners, self.manager.key: ManagedFieldsEntry(self.manager, time, fields)}

    def _finished(self, out: Object, owners: Owners) -> Object:
        out["metadata"] = dict(out["metadata"])
        set_managed_fields(out["metadata"], owners)
        if self.manager.name == KUBECTL:
            refresh_annotation(out, self.patch)
        return out
