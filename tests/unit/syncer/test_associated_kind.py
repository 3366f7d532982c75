"""A kind of associated objects of which there is none is read too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object
from atoll.syncer.associated_index import AssociatedIndex
from atoll.syncer.associated_kind import AssociatedKind, Needs
from atoll.syncer.kinds import Kind

SLICES = Kind(Resource("discovery.k8s.io", "v1", "endpointslices"), "EndpointSlice", False, frozenset({"watch"}))


class Empty:
    """A cluster without objects, which answers lists of metadata as kube-apiserver does."""

    def metadata(self) -> Empty:
        return self

    async def page(self, path: str, query: object) -> Object:
        head = {
            "apiVersion": "meta.k8s.io/v1",
            "kind": "PartialObjectMetadataList",
            "metadata": {"resourceVersion": "1"},
        }
        return {**head, "items": None}

    @asynccontextmanager
    async def watch(self, resource: Resource, **options: str) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield


async def test_an_empty_list_of_metadata_is_a_whole_one() -> None:
    found, read = (
        AssociatedKind(cast(Client, Empty()), SLICES, Needs(), AssociatedIndex(), lambda *_: None),
        asyncio.Event(),
    )
    found.start(read.set)
    await asyncio.wait_for(read.wait(), 20.0)
    assert found.is_read
    found.stop()
