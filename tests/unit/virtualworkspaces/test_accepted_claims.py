"""What a consumer's bindings grant without a claim: what is bound of the export, and reads of the bindings to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.meta.selectors import LabelSelector
from atoll.virtualworkspaces.accepted_claims import AcceptedClaims, AcceptedClaimsReader
from atoll.virtualworkspaces.export_catalog import BINDINGS, ExportCatalog, ExportKey, Name
from harness.clients.api import crd
from harness.servers.in_process.minimal_shard import cell

CIRCLES: Name = ("shapes.example.com", "circles")

NOTHING = AcceptedClaims(frozenset(), {}, ())


@pytest.mark.parametrize("verb", ["get", "list", "watch"])
def test_bindings_are_read(verb: str) -> None:
    assert NOTHING.allows(verb, BINDINGS, None)
    assert not NOTHING.allows(verb, BINDINGS, None, "status")
    assert not NOTHING.allows(verb, ("", "configmaps"), None)


@pytest.mark.parametrize("verb", ["create", "update", "patch", "delete", "deletecollection"])
def test_bindings_are_not_written(verb: str) -> None:
    for subresource in ("", "status"):
        assert not NOTHING.allows(verb, BINDINGS, None, subresource)


async def test_a_bound_resource_is_granted_as_long_as_the_export_has_it(tmp_path: Path) -> None:
    async with cell(tmp_path) as here:
        await here.cluster("provider")
        await here.cluster("consumer")
        await here.export("provider", "shapes", crd("circles", "shapes.example.com"))
        await here.bind("consumer", "provider", "shapes")
        await here.settle()
        reader = AcceptedClaimsReader()

        def allows(stamp: int, *own: Name) -> bool:
            offer = ExportCatalog({"spec": {}}, Catalog([]), frozenset(own), {}, LabelSelector([]), (stamp,), False)
            with here.store.snapshot() as snapshot:
                found = reader.of(snapshot, "consumer", ExportKey("provider", "shapes"), offer)
            return found is not None and found.allows("create", CIRCLES, None)

        assert allows(1, CIRCLES)
        assert not allows(2)
        assert allows(3, CIRCLES)
