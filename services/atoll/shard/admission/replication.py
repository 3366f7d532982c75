"""What travels to other shards, on its way in: words and levels that the system notes, and levels that authors ask for.

The words of `internal.kcp.io/replicate` and the note `internal.atoll.dev/level` follow from what stands; whoever writes
others finds them put right. Stands for the part of kcp's replication labellers that needs no controller. The level of
an export or a schema is its author's to say, in words that are understood.
"""

from __future__ import annotations

from atoll.machinery.apiserver.admission.chain import Review
from atoll.machinery.apiserver.call import errors
from atoll.machinery.kcp.sharding import replicate_annotation, replication_level
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.types import API_EXPORTS
from atoll.machinery.schema.fielderrors import not_supported
from atoll.tenancy.lookups import Lookups
from atoll.tenancy.replication_scope import NOTED, ReplicationScope

_NOTED = {(type.group, type.resource): type for type in NOTED}
_LEVELLED = frozenset({*_NOTED, (API_EXPORTS.group, API_EXPORTS.resource)})


class Replication:
    """Notes and checks."""

    def __init__(self, facts: Lookups) -> None:
        self._reach = ReplicationScope(facts)

    def mutate(self, review: Review) -> None:
        type, obj = _NOTED.get(review.group_resource), review.obj
        if type is None or obj is None or review.subresource:
            return
        wanted = self._reach.noted(review.view, review.call.key(str(obj["metadata"].get("name", ""))), obj)
        if review.call.whole:
            # Bootstrap knows of bindings that it writes next, and the labelling controller has judged already.
            wanted = replicate_annotation.with_words(
                wanted, replicate_annotation.words_of(wanted) | replicate_annotation.words_of(obj)
            )
        if wanted is not obj:
            obj["metadata"] = wanted["metadata"]

    def validate(self, review: Review) -> None:
        if review.group_resource not in _LEVELLED or review.obj is None:
            return
        level = _said(review.obj)
        if (
            level is not None
            and level not in replication_level.LEVELS
            and level != (_said(review.old) if review.old else None)
        ):
            text = str(
                not_supported(f"metadata.annotations[{replication_level.LEVEL}]", level, replication_level.LEVELS)
            )
            raise errors.forbidden(review.call.kind, review.obj["metadata"]["name"], text)


def _said(obj: Object) -> str | None:
    found: str | None = (obj["metadata"].get("annotations") or {}).get(replication_level.LEVEL)
    return found
