"""Admission of Shards: empty URLs default to the base URL; no Shard for a store that was struck off.

Implements kcp's plug-in core.kcp.io/Shard. The Shard `root` stays while it records stores that were struck off: without
the record they would count again.
"""

from __future__ import annotations

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.apiserver.call import errors
from atoll.machinery.kcp.sharding.forgotten_stores import forgotten_stores
from atoll.machinery.kcp.sharding.ownership import ROOT_SHARD
from atoll.machinery.kcp.sharding.shards import STORE
from atoll.machinery.meta.names import ROOT, ObjectKey
from atoll.machinery.meta.objects import annotations_of, decode, spec_of
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

    def validate(self, review: Review) -> None:
        if review.call.kind.type != self._type or review.subresource:
            return
        root = review.view.get(ObjectKey(self._type, ROOT, "", ROOT_SHARD))
        records = forgotten_stores(decode(root.value)) if root is not None else ()
        if not records:
            return
        if review.obj is None:
            name = review.old["metadata"]["name"] if review.old is not None else ROOT_SHARD
            if name == ROOT_SHARD:
                raise errors.forbidden(review.call.kind, name, "it records which stores were forgotten")
            return
        store, name = annotations_of(review.obj).get(STORE, ""), str(review.obj["metadata"].get("name", ""))
        if any(each.store == store for each in records):
            raise errors.forbidden(review.call.kind, name, f"its store {store} was forgotten")
