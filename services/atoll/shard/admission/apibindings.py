"""Admission of APIBindings: bind permission, accepted claims, finalizer and export label.

Implements kcp's plug-ins apis.kcp.io/APIBinding and APIBindingFinalizer. Objects arrive in the version of the request
and are validated in the stored version. A claim's selector may be edited in place: kcp's schema has a rule against it
that kcp's own end-to-end tests contradict, and without it a consumer must withdraw a claim to narrow it.
"""

from __future__ import annotations

from collections.abc import Iterator

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.apiserver.call import errors
from atoll.machinery.kcp.apis.apibindings import is_withheld, pinned_identity
from atoll.machinery.kcp.apis.versions import latest
from atoll.machinery.kinds.checks import items, mapping, text
from atoll.machinery.meta import hashes, wellknown
from atoll.machinery.meta.objects import Object, annotations_of, labels_of, status_of
from atoll.machinery.meta.selectors import validate_label_selector
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import forbidden, invalid, required
from atoll.shard.admission.workspaces import May, may_bind
from atoll.tenancy.lookups import Lookups

_OWN = ("apis.kcp.io", "apibindings")


class ApiBindings(Plugin):
    """Defaults and validates APIBindings."""

    resources = (_OWN,)

    def __init__(self, facts: Lookups, may: May) -> None:
        self._facts, self._may = facts, may

    def mutate(self, review: Review) -> None:
        if review.obj is None or review.call.whole:
            return
        metadata = review.obj["metadata"]
        if review.operation == "create":
            metadata["finalizers"] = list(dict.fromkeys([*items(metadata, "finalizers"), wellknown.BINDING_FINALIZER]))
        given = mapping(metadata, "labels")
        labels = {key: value for key, value in given.items() if key != hashes.EXPORT_LABEL}
        if label := self._label(review, review.obj):
            labels[hashes.EXPORT_LABEL] = label
        if labels or given:
            metadata["labels"] = labels

    def _label(self, review: Review, obj: Object) -> str:
        """Return the old label, which the binding controller changes alone, else the hash of the export.

        It is never the request's. It is empty while the workspace is not found, and until an export has the identity
        that the binding pins.
        """
        before = labels_of(review.old).get(hashes.EXPORT_LABEL) if review.old is not None else None
        if before:
            return str(before)
        reference = mapping(obj, "spec", "reference", "export")
        cluster = self._facts.sought_cluster_of(review.view, text(reference, "path") or review.call.cluster)
        name = text(reference, "name")
        return hashes.export_hash(cluster, name) if cluster and self._may_be_bound(review, obj, cluster, name) else ""

    def _may_be_bound(self, review: Review, obj: Object, cluster: str, name: str) -> bool:
        """Whether the export of a binding has the identity that the binding pins, or it pins none."""
        if wellknown.PINNED_IDENTITY not in mapping(obj, "metadata", "annotations"):
            return True
        export = self._facts.export(review.view, cluster, name, seen_from=review.call.cluster)
        return export is not None and not is_withheld(obj, export)

    def validate(self, review: Review) -> None:
        if review.obj is None:
            return
        kind, name = review.call.kind, review.obj["metadata"]["name"]
        found = list(_errors(latest(review.obj), review.old))
        if found:
            raise errors.forbidden(kind, name, f"[{' '.join(map(str, found))}]")
        reference = review.obj["spec"]["reference"]
        if review.old is not None:
            if review.old["spec"].get("reference") != reference:
                raise errors.forbidden(kind, name, "APIExport reference must not be changed")
            if pinned_identity(review.old) in {"", pinned_identity(review.obj)}:
                return
        if review.call.user.is_master:
            return
        path, export = reference["export"].get("path") or review.call.cluster, reference["export"]["name"]
        if not may_bind(self._facts, self._may, review, path, export):
            what = "create APIBinding" if review.old is None else f"change {wellknown.PINNED_IDENTITY}"
            raise errors.forbidden(kind, name, f"unable to {what}: no permission to bind to export {path}:{export}")


def _errors(obj: Object, old: Object | None) -> Iterator[FieldError]:
    """Yield the errors of a binding in the stored version."""
    if (obj["spec"].get("reference") or {}).get("export") is None:
        yield required("spec.reference.export")
    elif not text(obj, "spec", "reference", "export", "name"):
        yield required("spec.reference.export.name")
    if (pin := annotations_of(obj).get(wellknown.PINNED_IDENTITY)) is not None and not hashes.is_identity(str(pin)):
        field = f"metadata.annotations[{wellknown.PINNED_IDENTITY}]"
        yield invalid(field, pin, "must be an identity hash: 64 hexadecimal digits in lower case")
    for index, claim in enumerate(obj["spec"].get("permissionClaims") or []):
        yield from _selector_errors(claim.get("selector") or {}, f"spec.permissionClaims[{index}].selector")
    phase, before = (status_of(each or {}).get("phase") or "" for each in (obj, old))
    if before and not phase:
        yield forbidden("status.phase", f'cannot transition from "{before}" to ""')


def _selector_errors(selector: Object, path: str) -> Iterator[FieldError]:
    """Require exactly one of matchAll and a label selector."""
    given = [field for field in ("matchLabels", "matchExpressions") if selector.get(field)]
    if selector.get("matchAll"):
        yield from (invalid(f"{path}.{field}", selector, f"{field} cannot be used with matchAll") for field in given)
    elif not given:
        yield required(path, "either one of matchAll, matchLabels, or matchExpressions must be set")
    yield from validate_label_selector(selector, path)
