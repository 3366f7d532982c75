"""Admission of APIExportEndpointSlices: bind permission on the export, and the label that finds slices by export.

Implements kcp's plug-in apis.kcp.io/APIExportEndpointSlice. A slice reveals the endpoints of an export's consumers, so
its author must have `bind` on the export. The schema makes the reference immutable.
"""

from __future__ import annotations

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.apiserver.call import errors
from atoll.machinery.kcp.apis import endpointslices
from atoll.machinery.kcp.apis.endpointslices import Reference
from atoll.machinery.meta.objects import labels_of
from atoll.shard.admission.workspaces import May, may_bind
from atoll.tenancy.lookups import Lookups

_OWN = ("apis.kcp.io", "apiexportendpointslices")


class EndpointSlices(Plugin):
    """Labels and validates APIExportEndpointSlices."""

    resources = (_OWN,)

    def __init__(self, facts: Lookups, may: May) -> None:
        self._facts, self._may = facts, may

    def mutate(self, review: Review) -> None:
        """Label every slice except the export's default one (same cluster and name), which is found by its name."""
        if review.obj is None or review.subresource:
            return
        metadata, reference = review.obj["metadata"], endpointslices.reference_of(review.obj, review.call.cluster)
        labels = {key: value for key, value in labels_of(review.obj).items() if not _is_label(key)}
        if not self._is_default(review, metadata.get("name", ""), reference):
            labels[endpointslices.EXPORT_LABEL] = reference.label
        if labels != labels_of(review.obj):
            metadata["labels"] = labels
            if not labels:
                del metadata["labels"]

    def _is_default(self, review: Review, name: str, reference: Reference) -> bool:
        return name == reference.name and self._facts.cluster_of(review.view, reference.path) == review.call.cluster

    def validate(self, review: Review) -> None:
        if review.operation != "create" or review.call.user.is_master:
            return
        assert review.obj is not None
        reference = endpointslices.reference_of(review.obj, review.call.cluster)
        if not may_bind(self._facts, self._may, review, *reference):
            text = (
                "unable to create APIExportEndpointSlice: no permission to bind to export "
                f"{reference.path}:{reference.name}"
            )
            raise errors.forbidden(review.call.kind, review.obj["metadata"].get("name", ""), text)


def _is_label(key: str) -> bool:
    return key == endpointslices.EXPORT_LABEL
