"""Admission of SinglePlacementSlices: their destinations are the service's alone.

The placement translator sends objects where a slice says, without another look at the right to place there. The where
resolver writes slices through the view of their export, so destinations that come by another request are a tenant's.
"""

from __future__ import annotations

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.apiserver.call import errors
from atoll.machinery.edge.names import GROUP
from atoll.machinery.edge.slices import placement_name_of
from atoll.machinery.meta.names import CORE, LOCAL
from atoll.machinery.meta.objects import Object, owner_references_of


class PlacementSlices(Plugin):
    """Guards the slices of an export; those of a definition of a tenant's own are the tenant's."""

    resources = ((GROUP, "singleplacementslices"),)

    def validate(self, review: Review) -> None:
        """Refuse a write that gives destinations, or gives them to another placement, unless the provider makes it."""
        call, new = review.call, review.obj
        if new is None or call.restrictions.is_providers or call.kind.identity in (CORE, LOCAL):
            return
        if _gives_destinations(new, review.old):
            raise errors.forbidden(call.kind, review.name, "only the edge service says where a placement goes")


def _gives_destinations(new: Object, old: Object | None) -> bool:
    """Whether a placement has other destinations after a write. The owner alone may go: dependents are orphaned so."""
    if old is None or new.get("destinations") != old.get("destinations"):
        return bool(new.get("destinations") or (old or {}).get("destinations"))
    is_moved = bool(owner_references_of(new)) and placement_name_of(new) != placement_name_of(old)
    return is_moved and bool(new.get("destinations"))
