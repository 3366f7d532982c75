"""Replication labels of what an export offers, when writes of them conflict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from atoll.controllers.exports.replication_labels import Cluster, ReplicationLabels
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.kcp.sharding import replication_level
from atoll.machinery.meta.objects import Object, annotations_of
from atoll.machinery.meta.status import Conflict
from atoll.machinery.meta.types import API_EXPORTS, API_RESOURCE_SCHEMAS
from harness.clients.api import crd
from harness.servers.in_process.minimal_shard import cell


async def test_what_could_not_be_labelled_is_labelled_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cell(tmp_path) as here:
        await here.cluster("provider")
        made = await here.export("provider", "shapes", crd("circles", "shapes.example.com"))
        annotations = {**annotations_of(made), replication_level.LEVEL: replication_level.REGION}
        metadata = {**here.found(API_EXPORTS, "provider", "shapes")["metadata"], "annotations": annotations}
        await here.change(API_EXPORTS, "provider", "shapes", metadata=metadata)
        update, conflicts = here.loopback.update, [Conflict("it changed")]

        async def overtaken(target: Target, obj: Object, **options: Any) -> Object:
            if target.kind.type == API_RESOURCE_SCHEMAS and conflicts:
                raise conflicts.pop()
            return await update(target, obj, **options)

        monkeypatch.setattr(here.loopback, "update", overtaken)
        controller, key = ReplicationLabels(here.loopback, here.facts), Cluster("provider")
        assert await controller.reconcile(key) == 0
        assert await controller.reconcile(key) is None
        (name,) = [each["schema"] for each in made["spec"]["resources"]]
        found = here.found(API_RESOURCE_SCHEMAS, "provider", name)
        assert annotations_of(found)[replication_level.DERIVED] == replication_level.REGION
