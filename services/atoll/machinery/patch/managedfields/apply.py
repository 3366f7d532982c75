"""Server-side apply.

The PATCH handler calls `apply_patch` with the live object in the request's version and writes what it returns
like an update. Invariants: an applier owns exactly the fields of its last patch; a field with another owner
changes only by force; applying the same patch twice returns the object unchanged, timestamps included.
"""

from __future__ import annotations

from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.equality import same
from atoll.machinery.patch.errors import InvalidApplyPatch, UndecodablePatch
from atoll.machinery.patch.fieldset import FieldSet, difference
from atoll.machinery.patch.managedfields.conflicts import conflict_error
from atoll.machinery.patch.managedfields.last_applied import KUBECTL, client_applied_fields, refresh_annotation
from atoll.machinery.patch.managedfields.managers import (
    BEFORE_FIRST_APPLY,
    UPDATE,
    ManagedFieldsEntry,
    Manager,
    Owners,
    decode,
    encode,
)
from atoll.machinery.patch.managedfields.options import ApplyOptions, Versions
from atoll.machinery.patch.managedfields.ownership import (
    OwnershipTransfer,
    VersionedChanges,
    reconcile_with_schema,
    transfer_ownership,
)
from atoll.machinery.patch.managedfields.pruning import prune
from atoll.machinery.patch.structuredmerge.comparison import UNOWNED_FIELDS
from atoll.machinery.patch.structuredmerge.fieldset_builder import SchemaMismatch, created_set, typed_set
from atoll.machinery.patch.structuredmerge.merge import merge
from atoll.machinery.patch.structuredmerge.topology import TypeSchema
from atoll.machinery.patch.structuredmerge.validation import typed_patch_error

__all__ = ["ApplyOptions", "apply_patch"]


def apply_patch(
    live: Object | None, patch: Object, manager: Manager, schema: TypeSchema, options: ApplyOptions
) -> Object:
    """The live object with the patch applied by `manager`, managedFields included; the patch if live is None.

    The result has metadata of its own; other parts may be shared with both inputs, which are not modified.
    `manager.operation` must be Apply. Raises InvalidApplyPatch (another version, managedFields in the patch),
    TypedPatchError (the schema cannot type it), ApplyConflict (fields of others, and no force).
    """
    _refuse_unfit(patch, manager)
    try:
        return _ApplyOperation(live, patch, manager, schema, options).result()
    except SchemaMismatch:
        raise typed_patch_error(patch, schema.root) from None
    except RecursionError:
        raise UndecodablePatch("error decoding YAML: exceeded max depth") from None


def _refuse_unfit(patch: Object, manager: Manager) -> None:
    given = patch.get("apiVersion")
    if given != manager.api_version:
        raise InvalidApplyPatch(
            f"Incorrect version specified in apply patch. Specified patch version: {given}, expected: {manager.api_version}"
        )
    if not isinstance(patch.get("metadata"), dict):
        raise InvalidApplyPatch("metadata is required in an apply patch")
    if patch["metadata"].get("managedFields") is not None:
        raise InvalidApplyPatch("metadata.managedFields must be nil")


class _ApplyOperation:
    """One apply. Steps in the order of `result`; what they share are the fields set here."""

    def __init__(
        self, live: Object | None, patch: Object, manager: Manager, schema: TypeSchema, options: ApplyOptions
    ) -> None:
        self.exists = live is not None
        nothing: Object = {"apiVersion": patch["apiVersion"], "kind": patch.get("kind"), "metadata": {}}
        self.live = live if live is not None else nothing
        self.patch = patch
        self.manager = manager
        self.root = schema.root
        self.options = options
        self.versions = Versions(manager.api_version, schema, options)

    def result(self) -> Object:
        # Everything the patch names counts while pruning, what nobody can own is left out of the record.
        applied = self.options.reset.filter(typed_set(self.patch, self.root))
        record = difference(applied, UNOWNED_FIELDS)
        recorded = decode(self.live["metadata"].get("managedFields"))
        owners = reconcile_with_schema(recorded or self._before_first_apply(), self.versions, record)
        last = owners.get(self.manager.key)
        merged = merge(self.live, self.patch, self.root)
        if last is not None and difference(last.fields, applied):
            everybody = {**owners, self.manager.key: ManagedFieldsEntry(self.manager, "", applied)}
            merged = prune(merged, everybody, last, self.versions)
        changes = VersionedChanges(self.live, merged, self.versions, self.options.reset)
        settled = transfer_ownership(owners, changes, self.manager.key)
        if settled.taken and not self.options.force:
            self._refuse_conflicts(settled)
        # The order of items is part of the object, though no field of it.
        is_changed = not same(self.live, merged)
        owners = self._recorded(settled.owners, record, last, is_changed)
        return self._finished(dict(merged), owners)

    def _before_first_apply(self) -> Owners:
        """An object that nobody tracked: all it has belongs to one made-up manager, so apply conflicts."""
        if not self.exists:
            return {}
        manager = Manager(BEFORE_FIRST_APPLY, UPDATE, self.manager.api_version, self.manager.subresource)
        fields = self.options.reset.filter(created_set(self.live, self.root))
        return {manager.key: ManagedFieldsEntry(manager, self.options.now, fields)} if fields else {}

    def _refuse_conflicts(self, settled: OwnershipTransfer) -> None:
        """Raise for the fields of others; kubectl may take those it wrote itself by client-side apply."""
        taken = settled.taken
        if self.manager.name == KUBECTL:
            waived = client_applied_fields(self.live, self.root)
            taken = [(entry, left) for entry, fields in taken if (left := difference(fields, waived))]
        if taken:
            raise conflict_error(taken)

    def _recorded(self, owners: Owners, fields: FieldSet, last: ManagedFieldsEntry | None, is_changed: bool) -> Owners:
        """The owners with this manager's new entry. Its time is when the object last changed by it: an apply that
        only takes note of fields that are as it wants them has none, as in Kubernetes.
        """
        if not fields:
            return {key: entry for key, entry in owners.items() if key != self.manager.key}
        if last is not None and not is_changed and last.fields == fields and last.manager == self.manager:
            return {**owners, self.manager.key: last}
        time = self.options.now if is_changed else last.time if last is not None else ""
        return {**owners, self.manager.key: ManagedFieldsEntry(self.manager, time, fields)}

    def _finished(self, out: Object, owners: Owners) -> Object:
        metadata = dict(out["metadata"])
        if owners:
            metadata["managedFields"] = encode(owners)
        else:
            metadata.pop("managedFields", None)
        out["metadata"] = metadata
        if self.manager.name == KUBECTL:
            refresh_annotation(out, self.patch)
        return out
