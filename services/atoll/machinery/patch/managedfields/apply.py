"""Server-side apply.

The PATCH handler calls `apply_patch` with the live object in the request's version and writes what it returns
like an update. Invariants: an applier owns exactly the fields of its last patch; a field with another owner
changes only by force; applying the same patch twice returns the object unchanged, timestamps included.
"""

from __future__ import annotations

from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.equality import same
from atoll.machinery.patch.errors import ApplyRefused, UndecodablePatch
from atoll.machinery.patch.fieldset import FieldSet, difference
from atoll.machinery.patch.managedfields.conflicts import conflict_error
from atoll.machinery.patch.managedfields.last_applied import KUBECTL, client_applied_fields, refresh_annotation
from atoll.machinery.patch.managedfields.managers import (
    BEFORE_FIRST_APPLY,
    UPDATE,
    Entry,
    Manager,
    Owners,
    decode,
    encode,
)
from atoll.machinery.patch.managedfields.options import ApplyOptions, Versions
from atoll.machinery.patch.managedfields.ownership import Changes, Settled, reconcile, settle
from atoll.machinery.patch.managedfields.pruning import prune
from atoll.machinery.patch.structuredmerge.comparison import UNOWNED
from atoll.machinery.patch.structuredmerge.fieldset_builder import Untyped, created_set, typed_set
from atoll.machinery.patch.structuredmerge.merge import merge
from atoll.machinery.patch.structuredmerge.topology import TypeSchema
from atoll.machinery.patch.structuredmerge.validation import refuse

__all__ = ["ApplyOptions", "apply_patch"]


def apply_patch(live: Object | None, patch: Object, who: Manager, schema: TypeSchema, options: ApplyOptions) -> Object:
    """The live object with the patch applied by `who`, managedFields included; the patch if live is None.

    The result has metadata of its own; other parts may be shared with both inputs, which are not modified.
    `who.operation` must be Apply. Raises ApplyRefused (another version, managedFields in the patch),
    TypedPatchError (the schema cannot type it), ApplyConflict (fields of others, and no force).
    """
    _refuse_unfit(patch, who)
    try:
        return _Apply(live, patch, who, schema, options).result()
    except Untyped:
        raise refuse(patch, schema.root) from None
    except RecursionError:
        raise UndecodablePatch("error decoding YAML: exceeded max depth") from None


def _refuse_unfit(patch: Object, who: Manager) -> None:
    given = patch.get("apiVersion")
    if given != who.api_version:
        raise ApplyRefused(
            f"Incorrect version specified in apply patch. Specified patch version: {given}, expected: {who.api_version}"
        )
    if not isinstance(patch.get("metadata"), dict):
        raise ApplyRefused("metadata is required in an apply patch")
    if patch["metadata"].get("managedFields") is not None:
        raise ApplyRefused("metadata.managedFields must be nil")


class _Apply:
    """One apply. Steps in the order of `result`; what they share are the fields set here."""

    def __init__(
        self, live: Object | None, patch: Object, who: Manager, schema: TypeSchema, options: ApplyOptions
    ) -> None:
        self.exists = live is not None
        nothing: Object = {"apiVersion": patch["apiVersion"], "kind": patch.get("kind"), "metadata": {}}
        self.live = live if live is not None else nothing
        self.patch = patch
        self.who = who
        self.root = schema.root
        self.options = options
        self.versions = Versions(who.api_version, schema, options)

    def result(self) -> Object:
        # Everything the patch names counts while pruning, what nobody can own is left out of the record.
        applied = self.options.reset.filter(typed_set(self.patch, self.root))
        record = difference(applied, UNOWNED)
        recorded = decode(self.live["metadata"].get("managedFields"))
        owners = reconcile(recorded or self._before_first_apply(), self.versions, record)
        last = owners.get(self.who.identity)
        merged = merge(self.live, self.patch, self.root)
        if last is not None and difference(last.fields, applied):
            everybody = {**owners, self.who.identity: Entry(self.who, "", applied)}
            merged = prune(merged, everybody, last, self.versions)
        changes = Changes(self.live, merged, self.versions, self.options.reset)
        settled = settle(owners, changes, self.who.identity)
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
        who = Manager(BEFORE_FIRST_APPLY, UPDATE, self.who.api_version, self.who.subresource)
        fields = self.options.reset.filter(created_set(self.live, self.root))
        return {who.identity: Entry(who, self.options.now, fields)} if fields else {}

    def _refuse_conflicts(self, settled: Settled) -> None:
        """Raise for the fields of others; kubectl may take those it wrote itself by client-side apply."""
        taken = settled.taken
        if self.who.name == KUBECTL:
            waived = client_applied_fields(self.live, self.root)
            taken = [(entry, left) for entry, fields in taken if (left := difference(fields, waived))]
        if taken:
            raise conflict_error(taken)

    def _recorded(self, owners: Owners, fields: FieldSet, last: Entry | None, is_changed: bool) -> Owners:
        """The owners with this manager's new entry. Its time is when the object last changed by it: an apply that
        only takes note of fields that are as it wants them has none, as in Kubernetes.
        """
        if not fields:
            return {identity: entry for identity, entry in owners.items() if identity != self.who.identity}
        if last is not None and not is_changed and last.fields == fields and last.who == self.who:
            return {**owners, self.who.identity: last}
        time = self.options.now if is_changed else last.time if last is not None else ""
        return {**owners, self.who.identity: Entry(self.who, time, fields)}

    def _finished(self, out: Object, owners: Owners) -> Object:
        metadata = dict(out["metadata"])
        if owners:
            metadata["managedFields"] = encode(owners)
        else:
            metadata.pop("managedFields", None)
        out["metadata"] = metadata
        if self.who.name == KUBECTL:
            refresh_annotation(out, self.patch)
        return out
