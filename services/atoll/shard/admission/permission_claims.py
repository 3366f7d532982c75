"""Labels of permission claims, set on every create and update whichever door it came through.

They are the system's alone: `rest.write` takes away what the writer, or the object before, has of them, and this
plug-in puts there what the cluster's bindings grant. It comes last of those that change objects, as it is judged by the
labels that the others set. Stands for kcp's plug-in apis.kcp.io/PermissionClaims.
"""

from __future__ import annotations

from atoll.machinery.apiserver.admission.chain import Review
from atoll.tenancy.claim_labels import ClaimLabels


class PermissionClaims:
    """Labels what permission claims cover."""

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

    def validate(self, review: Review) -> None:
        """Nothing to refuse."""
