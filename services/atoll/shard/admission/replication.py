"""Admission of replicated objects: computes the replicate annotation and level, validates the requested level.

`internal.kcp.io/replicate` and `internal.atoll.dev/level` are computed from the stored state; other values in a request
are overwritten. Implements the part of kcp's replication labellers that needs no controller. The author of an export or
a schema may set its level to one of the known values.
"""

from __future__ import annotations

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.apiserver.call import errors
from atoll.machinery.kcp.sharding import replicate_annotation, replication_level
from atoll.machinery.meta.objects import Object, annotations_of
from atoll.machinery.meta.types import API_EXPORTS
from atoll.machinery.schema.fielderrors import not_supported
from atoll.tenancy.lookups import Lookups
from atoll.tenancy.replication_scope import NOTED, ReplicationScope

_NOTED = {(type.group, type.resource): type for type in NOTED}
_LEVELLED = frozenset({*_NOTED, (API_EXPORTS.group, API_EXPORTS.resource)})


class Replication(Plugin):
    """Sets replication annotations and validates the requested level."""

    resources = _LEVELLED

    def __init__(self, facts: Lookups) -> None:
        self._reach = ReplicationScope(facts)

    def mutate(self, review: Review) -> None:
        type, obj = _NOTED.get(review.group_resource), review.obj
        if type is None or obj is None or review.subresource:
            return
        wanted = self._reach.noted(review.view, review.call.key(str(obj["metadata"].get("name", ""))), obj)
        if review.call.whole:
            # Keep the request's words: bootstrap counts bindings of the same batch; the controller computed its own.
            wanted = replicate_annotation.with_words(
                wanted, replicate_annotation.words_of(wanted) | replicate_annotation.words_of(obj)
            )
        if wanted is not obj:
            obj["metadata"] = wanted["metadata"]

    def validate(self, review: Review) -> None:
        if review.obj is None:
            return
        level = _requested_level(review.obj)
        if (
            level is not None
            and level not in replication_level.LEVELS
            and level != (_requested_level(review.old) if review.old else None)
        ):
            text = str(
                not_supported(f"metadata.annotations[{replication_level.LEVEL}]", level, replication_level.LEVELS)
            )
            raise errors.forbidden(review.call.kind, review.obj["metadata"]["name"], text)


def _requested_level(obj: Object) -> str | None:
    found: str | None = annotations_of(obj).get(replication_level.LEVEL)
    return found
