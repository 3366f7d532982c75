"""Admission of replicated objects: computes the replicate annotation and level, validates the requested level.

`internal.kcp.io/replicate` and `internal.atoll.dev/level` are computed from the stored state; other values in a request
are overwritten. Implements the part of kcp's replication labellers that needs no controller. The author of an export or
a schema may set its level to one of the known values; an export without one gets the operator's default, except in the
workspace `root`, whose exports every shard needs.
"""

from __future__ import annotations

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.apiserver.call import errors
from atoll.machinery.kcp.sharding import replicate_annotation, replication_level
from atoll.machinery.meta.names import ROOT
from atoll.machinery.meta.objects import Object, annotations_of
from atoll.machinery.meta.types import API_EXPORTS
from atoll.machinery.schema.fielderrors import not_supported
from atoll.tenancy.lookups import Lookups
from atoll.tenancy.replication_scope import NOTED, SYSTEM_WORDS, ReplicationScope

_NOTED = {(type.group, type.resource): type for type in NOTED}
_EXPORTS = (API_EXPORTS.group, API_EXPORTS.resource)
_LEVELLED = frozenset({*_NOTED, _EXPORTS})


class Replication(Plugin):
    """Sets replication annotations and validates the requested level."""

    resources = _LEVELLED

    def __init__(self, facts: Lookups) -> None:
        self._reach, self._default = ReplicationScope(facts), facts.default_level

    def mutate(self, review: Review) -> None:
        type, obj = _NOTED.get(review.group_resource), review.obj
        if obj is not None and review.group_resource == _EXPORTS and not review.subresource:
            self._set_default(review.call.cluster, obj)
        if type is None or obj is None or review.subresource:
            return
        wanted = self._reach.noted(review.view, review.call.key(str(obj["metadata"].get("name", ""))), obj)
        if review.call.whole and type not in SYSTEM_WORDS:
            # Keep the request's words: bootstrap counts bindings of the same batch; the controller computed its own.
            wanted = replicate_annotation.with_words(
                wanted, replicate_annotation.words_of(wanted) | replicate_annotation.words_of(obj)
            )
        if wanted is not obj:
            obj["metadata"] = wanted["metadata"]

    def _set_default(self, cluster: str, export: Object) -> None:
        if self._default == replication_level.GLOBAL or cluster == ROOT or _requested_level(export) is not None:
            return
        annotations = {**annotations_of(export), replication_level.LEVEL: self._default}
        export["metadata"] = {**export["metadata"], "annotations": annotations}

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
