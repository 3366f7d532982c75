"""Admission of EdgePlacements: how many of them a workspace may have.

Each is tried for each object of its workspace, so the cost of one workspace in the controllers is the product of both.
A creation is refused, so what is placed already is never withdrawn by one placement more.
"""

from __future__ import annotations

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.apiserver.call import errors
from atoll.machinery.edge.names import GROUP
from atoll.machinery.meta.names import CORE, LOCAL

MAX_PLACEMENTS = 1000


class EdgePlacements(Plugin):
    """Bounds the EdgePlacements of an export; those of a definition of a tenant's own are the tenant's."""

    resources = ((GROUP, "edgeplacements"),)

    def validate(self, review: Review) -> None:
        """Refuse a creation beyond MAX_PLACEMENTS, as far as the view of this write shows."""
        call = review.call
        if review.operation != "create" or review.subresource or call.kind.identity in (CORE, LOCAL):
            return
        if len(review.view.revisions(call.scope, limit=MAX_PLACEMENTS)) >= MAX_PLACEMENTS:
            text = f"a workspace has at most {MAX_PLACEMENTS} EdgePlacements"
            raise errors.forbidden(call.kind, review.name, text)
