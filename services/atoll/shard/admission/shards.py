"""Admission of Shards: empty URLs default to the base URL.

Implements kcp's plug-in core.kcp.io/Shard.
"""

from __future__ import annotations

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.meta.objects import spec_of
from atoll.tenancy.lookups import Lookups

_URLS = ("externalURL", "virtualWorkspaceURL")


class Shards(Plugin):
    """Sets empty URLs of a Shard to spec.baseURL."""

    def __init__(self, facts: Lookups) -> None:
        self._type = facts.identities.shard_objects
        self.resources = ((self._type.group, self._type.resource),)

    def mutate(self, review: Review) -> None:
        if review.call.kind.type != self._type or review.obj is None or review.subresource:
            return
        spec = spec_of(review.obj)
        if base := spec.get("baseURL"):
            review.obj["spec"] = {**dict.fromkeys(_URLS, base), **{k: v for k, v in spec.items() if v}}
