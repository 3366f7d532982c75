"""Permission claim labels, set on every create and update, through virtual workspaces too.

Only the system sets them: `rest.write` removes those of the request and of the old object, and this plug-in adds those
that the cluster's bindings grant. It runs last of the mutating plug-ins, because claim selectors match the labels that
the others set. Implements kcp's plug-in apis.kcp.io/PermissionClaims.
"""

from __future__ import annotations

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.tenancy.claim_labels import ClaimLabels


class PermissionClaims(Plugin):
    """Labels objects that accepted permission claims cover."""

    def __init__(self) -> None:
        self._labels = ClaimLabels()

    def mutate(self, review: Review) -> None:
        obj, call = review.obj, review.call
        if obj is None:
            return
        labelling, type = self._labels.of(review.view, call.cluster), call.kind.type
        if not labelling.covers(type):
            return
        metadata = obj["metadata"]
        labels = metadata.get("labels")
        if wanted := labelling.wanted(type, labels):
            metadata["labels"] = {**labels, **wanted} if labels else wanted
