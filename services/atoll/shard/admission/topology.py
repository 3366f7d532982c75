"""Admission of Partitions: the shard selector must be valid.

The schema of PartitionSets validates theirs. The schema of Partitions does not, and an invalid selector would leave the
endpoint slices of the workspace without endpoints.
"""

from __future__ import annotations

from atoll.machinery.apiserver.admission.chain import Review, Validator
from atoll.machinery.meta.objects import spec_of
from atoll.machinery.meta.selectors import validate_label_selector
from atoll.machinery.meta.status import invalid

_OWN = ("topology.kcp.io", "partitions")


class Partitions(Validator):
    """Validates Partitions."""

    def validate(self, review: Review) -> None:
        if review.group_resource != _OWN or review.obj is None:
            return
        selector = spec_of(review.obj).get("selector") or {}
        if review.old is not None and (spec_of(review.old).get("selector") or {}) == selector:
            return
        found = validate_label_selector(selector, "spec.selector")
        if found:
            raise invalid(review.call.kind.group_kind, review.obj["metadata"]["name"], found)
