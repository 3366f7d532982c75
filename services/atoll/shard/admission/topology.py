"""Admission of Partitions and PartitionSets: the shard selector must be valid.

An invalid selector would leave the endpoint slices of the workspace without endpoints. The schema of PartitionSets
bounds the keys of theirs as a whole; prefix and name have a bound each.
"""

from __future__ import annotations

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.meta.objects import spec_of
from atoll.machinery.meta.selectors import validate_label_selector
from atoll.machinery.meta.status import invalid

_GROUP = "topology.kcp.io"
#: The field of the selector by resource.
_FIELDS = {(_GROUP, "partitions"): "selector", (_GROUP, "partitionsets"): "shardSelector"}


class ShardSelectors(Plugin):
    """Validates Partitions and PartitionSets."""

    resources = _FIELDS

    def validate(self, review: Review) -> None:
        field = _FIELDS[review.group_resource]
        if review.obj is None or review.subresource:
            return
        selector = spec_of(review.obj).get(field) or {}
        if review.old is not None and (spec_of(review.old).get(field) or {}) == selector:
            return
        found = validate_label_selector(selector, f"spec.{field}")
        if found:
            raise invalid(review.call.kind.group_kind, review.obj["metadata"]["name"], found)
