"""Shards on their way in: whoever reaches one by a single URL needs to say it once.

Stands for kcp's plug-in core.kcp.io/Shard.
"""

from __future__ import annotations

from atoll.machinery.apiserver.admission.chain import Review
from atoll.tenancy.lookups import Lookups

_URLS = ("externalURL", "virtualWorkspaceURL")


class Shards:
    """Fills in the URLs that a Shard leaves out."""

    def __init__(self, facts: Lookups) -> None:
        self._type = facts.identities.shard_objects

    def mutate(self, review: Review) -> None:
        if review.call.kind.type != self._type or review.obj is None or review.subresource:
            return
        spec = review.obj.get("spec") or {}
        if base := spec.get("baseURL"):
            review.obj["spec"] = {**dict.fromkeys(_URLS, base), **{k: v for k, v in spec.items() if v}}

    def validate(self, review: Review) -> None:
        """Nothing to refuse."""
