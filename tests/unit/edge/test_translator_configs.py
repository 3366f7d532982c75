"""The translator knows the SyncerConfigs of each mailbox as its watch showed them last."""

from __future__ import annotations

from pathlib import Path

from atoll.edge.kinds import SYNCER_CONFIGS
from atoll.edge.placement_translator.translator import PlacementTranslator
from atoll.edge.store import EdgeStore
from atoll.machinery.client.client import Client
from atoll.machinery.edge.categories import BuiltIns
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.wellknown import CLUSTER
from harness.servers.stand_ins.canned_api import CannedApi


def config(name: str, revision: int) -> Object:
    return {"metadata": {"name": name, "resourceVersion": str(revision), "annotations": {CLUSTER: "mb"}}, "spec": {}}


async def test_parts_of_a_list_are_those_seen_last(tmp_path: Path) -> None:
    store = EdgeStore(tmp_path / "store", allow_any_filesystem=True)
    async with Client.from_kubeconfig(str(CannedApi().kubeconfig(tmp_path))) as client:
        translator = PlacementTranslator(client, "root:espw", "edge", BuiltIns(frozenset(), frozenset()), store)
        parts = translator._projection.parts
        first, second, other = config("the-one", 1), config("the-one", 2), config("the-one-2", 3)
        for old, new in ((None, first), (first, second), (None, other)):
            translator._control_changed(SYNCER_CONFIGS, old, new)
        assert list(parts("mb")) == [second, other]
        for gone in (second, other):
            translator._control_changed(SYNCER_CONFIGS, gone, None)
        assert list(parts("mb")) == []
        assert translator._configs == {}
    store.close()
