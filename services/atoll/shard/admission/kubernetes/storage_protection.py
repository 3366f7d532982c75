"""Finalizers that hold volumes, claims and their classes while something uses them.

Implements kube-apiserver's plug-in StorageObjectInUseProtection; `controllers.kubernetes.storage_protection` removes
the finalizers when nothing uses a deleted object any more.
"""

from __future__ import annotations

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.kinds.kubernetes.storage_use import FINALIZERS
from atoll.machinery.meta.objects import finalizers_of
from atoll.shard.admission.kubernetes.served import is_new


class StorageProtection(Plugin):
    """Adds the finalizer to new objects."""

    resources = FINALIZERS

    def mutate(self, review: Review) -> None:
        finalizer = FINALIZERS[review.group_resource]
        if is_new(review) and finalizer not in finalizers_of(review.result):
            review.result["metadata"]["finalizers"] = [*finalizers_of(review.result), finalizer]
