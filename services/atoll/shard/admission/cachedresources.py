"""Admission of ClusterCachedResources and their endpoint slices.

A resource has at most one ClusterCachedResource in a workspace and must be cluster-scoped, as in kcp's plug-in
cache.kcp.io/ClusterCachedResource. The author of a ClusterCachedResource must have `list` on the resource, and the
author of a slice for another workspace's export must have `bind` on that export.
"""

from __future__ import annotations

from collections.abc import Iterator

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.apiserver.authorization.attributes import Attributes
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.kcp.apis import cachedresources, endpointslices
from atoll.machinery.kcp.apis.cachedresources import Resource
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.objects import Object, decode, labels_of
from atoll.machinery.meta.types import CACHED_RESOURCE_ENDPOINT_SLICES, CACHED_RESOURCES
from atoll.machinery.storage.contract import Scope
from atoll.machinery.storage.pages import each_record
from atoll.shard.admission.workspaces import May, may_bind
from atoll.tenancy.lookups import Lookups


class CachedResourceReferences(Plugin):
    """Validates ClusterCachedResources. `catalogs` lists the kinds that a workspace serves."""

    resources = ((CACHED_RESOURCES.group, CACHED_RESOURCES.resource),)

    def __init__(self, catalogs: Catalogs, may: May) -> None:
        self._catalogs, self._may = catalogs, may

    def validate(self, review: Review) -> None:
        if review.obj is None:
            return
        resource = cachedresources.resource_of(review.obj)
        if review.subresource or (review.old is not None and cachedresources.resource_of(review.old) == resource):
            return
        name = review.obj["metadata"].get("name", "")
        if (refusal := self._refusal(review, resource)) is not None:
            raise errors.forbidden(review.call.kind, name, refusal)

    def _refusal(self, review: Review, resource: Resource) -> str | None:
        kind = self._kind(review, resource)
        if kind is not None and kind.namespaced:
            return "Resource referenced in ClusterCachedResource must be cluster-scoped"
        for other in _each(review):
            if cachedresources.resource_of(other) == resource and other["metadata"]["name"] != review.call.info.name:
                of = f"{resource.group}/{resource.version}, Resource={resource.plural}"
                return f'ClusterCachedResource "{other["metadata"]["name"]}" is for {of} already'
        attributes = Attributes(
            user=review.call.user,
            verb="list",
            cluster=review.call.cluster,
            group=resource.group,
            version=resource.version,
            resource=resource.plural,
        )
        return None if self._may(review.view, attributes) else f"no permission to list {resource.group_resource}"

    def _kind(self, review: Review, resource: Resource) -> Kind | None:
        kinds = self._catalogs.for_request(review.view, review.call.cluster).kinds.values()
        return next((kind for kind in kinds if (kind.group, kind.plural) == (resource.group, resource.plural)), None)


class CachedEndpointSlices(Plugin):
    """Validates ClusterCachedResourceEndpointSlices, and labels them with their export for index look-ups."""

    resources = ((CACHED_RESOURCE_ENDPOINT_SLICES.group, CACHED_RESOURCE_ENDPOINT_SLICES.resource),)

    def __init__(self, facts: Lookups, may: May) -> None:
        self._facts, self._may = facts, may

    def mutate(self, review: Review) -> None:
        if review.obj is None or review.subresource:
            return
        metadata = review.obj["metadata"]
        label = endpointslices.reference_of(review.obj, review.call.cluster).label
        metadata["labels"] = {**labels_of(review.obj), endpointslices.EXPORT_LABEL: label}

    def validate(self, review: Review) -> None:
        if review.operation != "create" or review.call.user.is_master:
            return
        assert review.obj is not None
        reference = endpointslices.reference_of(review.obj, review.call.cluster)
        if self._facts.cluster_of(review.view, reference.path) == review.call.cluster:
            # A slice beside its export needs no check: the view authorizes each request itself.
            return
        if not may_bind(self._facts, self._may, review, *reference):
            text = (
                "unable to create ClusterCachedResourceEndpointSlice: no permission to bind to export "
                f"{reference.path}:{reference.name}"
            )
            raise errors.forbidden(review.call.kind, review.obj["metadata"].get("name", ""), text)


def _each(review: Review) -> Iterator[Object]:
    """Iterate over the ClusterCachedResources of the workspace."""
    scope = Scope(CACHED_RESOURCES, review.call.cluster)
    return (decode(record.value) for record in each_record(review.view, scope))
