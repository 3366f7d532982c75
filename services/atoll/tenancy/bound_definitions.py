"""Rows of bound CRDs: written with the first binding that needs them, cached by revision.

The binding controller, workspace building and homes add them to the batch of the binding (`BoundCrds.add`). Invariant:
every written binding has its bound CRDs at the same revision: a guard holds the revision of existing ones, and one
marked for collection is unmarked in the same submit.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.catalog.revision_cache import RevisionCache
from atoll.machinery.apiserver.federation.federated_view import FederatedView, federated
from atoll.machinery.apiserver.writing.batch import Batch
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.kcp.apis import bound_crds
from atoll.machinery.kcp.apis.apibindings import Export
from atoll.machinery.kcp.apis.bound_crds import RequiredCrd
from atoll.machinery.kcp.apis.naming_conflicts import Names, names_of
from atoll.machinery.kinds.apiextensions.customresourcedefinitions import CUSTOMRESOURCEDEFINITIONS
from atoll.machinery.kinds.kind import no_warnings
from atoll.machinery.kinds.kubernetes.schema_names import row_of_schema
from atoll.machinery.meta import times
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ROOT, SYSTEM_BOUND_CRDS, ObjectKey
from atoll.machinery.meta.objects import Object, decode, spec_of
from atoll.machinery.meta.types import API_EXPORTS, API_RESOURCE_SCHEMAS
from atoll.machinery.storage.contract import Record, RevisionUnchanged

MAX_CACHED = 8192

#: The kind of bound CRDs: their schemas were validated at creation, and deletion does not wait for instances.
BOUND_CRDS = replace(
    CUSTOMRESOURCEDEFINITIONS,
    deferred_validator=None,
    warnings=no_warnings,
    begin_deletion=lambda obj: None,
    held=lambda obj: False,
)
#: The kind of those of Kubernetes' kinds, which are complete as they are made: a walk over each takes milliseconds.
_SHIPPED_CRDS = replace(BOUND_CRDS, schema=None)
#: An export with more missing ones gets them before its binding, in submits of so many bytes of schemas.
FEW, PART_BYTES = 5, 32 * 1024


class SchemaMissing(Exception):
    """A binding needs a bound CRD that does not exist, and the schema to build it from does not exist either."""

    def __init__(self, needed: RequiredCrd) -> None:
        super().__init__(f"schema {needed.schema} ({needed.uid}) of cluster {needed.cluster}")


class BoundCrd(msgspec.Struct, frozen=True):
    """The cached fields of a bound CRD. `exports` of `cluster` offer it; `collected`: it is marked for collection;
    `policed`: those of `exports` with a maximal permission policy, on other shards."""

    uid: str
    group: str
    names: Names
    cluster: str
    schema: str
    exports: tuple[str, ...]
    created: str
    collected: bool
    policed: tuple[str, ...] = ()


def target_of(uid: str) -> Target:
    """Return the write target of a bound CRD."""
    return Target(BOUND_CRDS, SYSTEM_BOUND_CRDS, "", uid)


class BoundCrds:
    """Finds and adds bound CRDs; a cached look-up reads only the row's revision."""

    def __init__(self) -> None:
        self._cached: LruCache[str, tuple[int, BoundCrd]] = LruCache(MAX_CACHED)
        self._policies = RevisionCache(_is_policed, MAX_CACHED)

    def get(self, view: View, uid: str) -> BoundCrd | None:
        """Return the bound CRD for a schema's uid; None if it does not exist."""
        return self._read_row(view, uid)[1]

    def _read_row(self, view: View, uid: str) -> tuple[int, BoundCrd | None]:
        """Return a bound CRD with its revision; revision 0 if a batch has not submitted it yet."""
        key = bound_crds.key_of(uid)
        revision = view.revision_of(key)
        found = self._cached.get(uid)
        if revision and found is not None and found[0] == revision:
            return found
        record = view.get(key)
        if record is None:
            return 0, None
        read = revision, _read(_parts.decode(record.value))
        if revision:
            self._cached.put(uid, read)
        return read

    def lacks(self, view: View, binding: Object) -> bool:
        """Whether a bound CRD of the binding is missing although its schema exists."""
        return any(
            self.get(view, needed.uid) is None and _schema(view, needed) is not None
            for needed in bound_crds.required_crds(binding)
        )

    def is_outdated(self, view: View, binding: Object) -> bool:
        """Whether a bound CRD of the binding lacks its export, or differs from a remote export's permission policy."""
        found = ((needed, self.get(view, needed.uid)) for needed in bound_crds.required_crds(binding))
        return any(crd is not None and _differs(crd, needed, self._polices(view, needed)) for needed, crd in found)

    def _polices(self, view: View, needed: RequiredCrd) -> bool | None:
        """Whether a binding's export is remote and has a maximal permission policy; None if unknown."""
        reaching = federated(view)
        if not isinstance(reaching, FederatedView):
            return None
        if reaching.is_local(needed.cluster):
            return False
        key = ObjectKey(API_EXPORTS, needed.cluster, "", needed.export)
        revision = reaching.revision_of(key)
        return self._policies.of(reaching, key, revision) if revision else None

    def forget_policy(self, batch: Batch, uid: str, export: str) -> None:
        """Add the removal of the note that an export has a maximal permission policy, if the bound CRD has it."""
        found = self.get(batch, uid)
        if found is None or export not in found.policed:
            return
        record = batch.get(bound_crds.key_of(uid))
        assert record is not None, "just read"
        kept = bound_crds.with_policed(decode(record.value), export, policed=False)
        batch.update(target_of(uid), kept, whole=True)

    def add(self, batch: Batch, binding: Object, before: Object | None = None) -> None:
        """Add the missing bound CRDs of a binding to a batch.

        `before` is the stored binding: a bound CRD that it refers to and whose schema is gone too is not restored.
        Raises SchemaMissing for one that `before` does not refer to. For a remote export the bound CRD records whether
        the export has a maximal permission policy.
        """
        known = {needed.uid for needed in bound_crds.required_crds(before)} if before is not None else set()
        for needed in bound_crds.required_crds(binding):
            revision, found = self._read_row(batch, needed.uid)
            policed = self._polices(batch, needed)
            if found is None:
                if not self._create(batch, needed) and needed.uid not in known:
                    raise SchemaMissing(needed)
            elif revision and (found.collected or _differs(found, needed, policed)):
                record = batch.get(needed.key)
                assert record is not None, "just read"
                kept = bound_crds.with_export(decode(record.value), needed.export)
                if policed is not None:
                    kept = bound_crds.with_policed(kept, needed.export, policed=policed)
                batch.update(target_of(needed.uid), kept, whole=True)
            elif revision:
                batch.guard(RevisionUnchanged(needed.key, revision))

    def _create(self, batch: Batch, needed: RequiredCrd) -> int:
        """Add a bound CRD to a batch; return the size of its schema, 0 if there is none."""
        record = _schema_record(batch, needed)
        if record is None or (schema := _with_uid(record, needed)) is None:
            return 0
        crd = bound_crds.bound_crd(schema, needed.cluster, needed.export, times.now())
        crd = bound_crds.with_policed(crd, needed.export, policed=bool(self._polices(batch, needed)))
        target = target_of(needed.uid)
        if needed.cluster == ROOT and row_of_schema(needed.schema) is not None:
            target = replace(target, kind=_SHIPPED_CRDS)
        batch.create(target, crd)
        return len(record.value)

    def add_some(self, batch: Batch, export: Export) -> bool:
        """Add some of an export's missing bound CRDs to a batch, so that the event loop goes on between them. Return
        whether there were any to add."""
        size = 0
        for each in export.resources:
            if size > PART_BYTES:
                break
            if not batch.revision_of(bound_crds.key_of(each.uid)):
                size += self._create(batch, RequiredCrd(export.cluster, export.name, each.schema, each.uid))
        return size > 0


def has_to_prepare(batch: Batch, export: Export) -> bool:
    """Return whether the binding controller does something before it binds an export: so many bound CRDs are missing
    that they are written before the binding, or Kubernetes' kinds are to be loaded."""
    if len(export.resources) <= FEW:
        return False
    if batch.catalogs.shipped.lacks(export.identity):
        return True
    return sum(not batch.revision_of(bound_crds.key_of(each.uid)) for each in export.resources) > FEW


def _is_policed(export: Object) -> bool:
    return (spec_of(export).get("maximalPermissionPolicy") or {}).get("local") is not None


def _differs(found: BoundCrd, needed: RequiredCrd, policed: bool | None) -> bool:
    """Whether a bound CRD does not list the export yet, or differs from its permission policy."""
    return needed.export not in found.exports or (policed is not None and policed != (needed.export in found.policed))


def _read(crd: _Parts) -> BoundCrd:
    annotations = crd.metadata.annotations
    noted: Object = {"metadata": {"annotations": annotations}}
    return BoundCrd(
        uid=crd.metadata.name,
        group=crd.spec.group,
        names=names_of(crd.spec.names),
        cluster=annotations.get(bound_crds.SCHEMA_CLUSTER, ""),
        schema=annotations.get(bound_crds.SCHEMA_NAME, ""),
        exports=tuple(bound_crds.exports_of(noted)),
        created=crd.metadata.creation_timestamp,
        collected=bound_crds.COLLECTED in annotations,
        policed=tuple(bound_crds.policed_of(noted)),
    )


def _schema(view: View, needed: RequiredCrd) -> Object | None:
    """Return the schema of a bound CRD; None if it does not exist or has another uid."""
    record = _schema_record(view, needed)
    return _with_uid(record, needed) if record is not None else None


def _schema_record(view: View, needed: RequiredCrd) -> Record | None:
    return federated(view).get(ObjectKey(API_RESOURCE_SCHEMAS, needed.cluster, "", needed.schema))


def _with_uid(record: Record, needed: RequiredCrd) -> Object | None:
    schema: Object = decode(record.value)
    return schema if schema["metadata"]["uid"] == needed.uid else None


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    creation_timestamp: str
    annotations: dict[str, str] = {}


class _Spec(msgspec.Struct, frozen=True):
    group: str
    names: Object


class _Parts(msgspec.Struct, frozen=True):
    """What is read of a bound CRD; the schemas are a hundred times as large."""

    metadata: _Metadata
    spec: _Spec


_parts = msgspec.json.Decoder(_Parts)
