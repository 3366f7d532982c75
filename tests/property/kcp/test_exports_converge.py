"""Random changes of exports, Secrets, bindings and slices, with controllers in random order: in the end each status
matches the objects, no identity has changed, and slices have the URLs of shards with bindings.
"""

from __future__ import annotations

import base64
import random
from pathlib import Path

import pytest

from atoll.controllers.bindings.extra_annotations import ExtraAnnotations
from atoll.controllers.exports.apiexports import ExportController
from atoll.controllers.exports.endpointslice_urls import EndpointUrlController
from atoll.controllers.exports.endpointslices import EndpointSliceController
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.kcp.apis import endpointslices
from atoll.machinery.kcp.apis.apiexports import EXTRA_PREFIX, extra_annotations
from atoll.machinery.meta import hashes
from atoll.machinery.meta.conditions import find
from atoll.machinery.meta.names import ROOT, ObjectKey
from atoll.machinery.meta.objects import Object, encode
from atoll.machinery.meta.types import API_BINDINGS, API_EXPORT_ENDPOINT_SLICES, API_EXPORTS, SECRETS
from atoll.machinery.storage.contract import Put
from harness.clients.exports import export
from harness.servers.in_process.minimal_shard import Cell, cell

EXPORTS, CONSUMERS, KEYS = ("e0", "e1"), ("c0", "c1", "c2"), ("one key", "another")
ROUNDS, STEPS = 12, 10
URL = "https://here.example"


class World:
    """A provider, three consumers, a workspace with a slice for each export, and one thing that happens at a time."""

    def __init__(self, here: Cell, chance: random.Random) -> None:
        self.here, self.chance = here, chance
        #: Identities by uid, which must not change.
        self.said: dict[str, str] = {}
        loopback, facts = here.loopback, here.facts
        here.controllers.extend(
            [
                ExportController(loopback),
                EndpointSliceController(loopback, facts, "here"),
                EndpointUrlController(loopback, facts, "here"),
                ExtraAnnotations(loopback, facts),
            ]
        )

    async def begin(self) -> None:
        for name in ("provider", "elsewhere", *CONSUMERS):
            await self.here.cluster(name)
        metadata = {"name": "here", "uid": "u", "annotations": {"kcp.io/cluster": ROOT}, "labels": {"zone": "a"}}
        value, hole = encode({"metadata": metadata, "spec": {"virtualWorkspaceURL": URL}})
        await self.here.store.submit(
            [Put(ObjectKey(self.here.facts.identities.shard_objects, ROOT, "", "here"), value, hole, 0)]
        )
        for name in EXPORTS:
            labels = {endpointslices.EXPORT_LABEL: hashes.export_hash("provider", name)}
            spec = {"export": {"path": "provider", "name": name}}
            made = {"metadata": {"name": f"for-{name}", "labels": labels}, "spec": spec}
            kind = {"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExportEndpointSlice"}
            await self.here.put(API_EXPORT_ENDPOINT_SLICES, "elsewhere", {**kind, **made})

    async def step(self) -> None:
        happens = self.chance.choice(
            [
                self.export,
                self.export,
                self.secret,
                self.secret,
                self.bind,
                self.bind,
                self.annotate,
                self.no_slice,
                self.turns,
                self.turns,
                self.turns,
            ]
        )
        await happens(self.chance.choice(EXPORTS))
        self.look()

    def look(self) -> None:
        for name in EXPORTS:
            obj = self.here.get(API_EXPORTS, "provider", name)
            known = ((obj or {}).get("status") or {}).get("identityHash")
            if obj is not None and known:
                assert self.said.setdefault(obj["metadata"]["uid"], known) == known

    async def turns(self, name: str) -> None:
        for _ in range(self.chance.randrange(8)):
            await self.here.turn(self.chance.choice([1, 3]))

    async def export(self, name: str) -> None:
        if self.here.get(API_EXPORTS, "provider", name) is None:
            await self.here.put(API_EXPORTS, "provider", export(name))
        elif self.chance.random() < 0.4:
            await self.here.delete(API_EXPORTS, "provider", name)

    async def secret(self, name: str) -> None:
        kind = self.here.kind(SECRETS)
        target = Target(kind, "provider", "kcp-system", name)
        found = self.here.loopback.get(SECRETS, "provider", "kcp-system", name)
        if found is None:
            return
        key = self.chance.choice([*KEYS, ""])
        data = {"key": base64.b64encode(key.encode()).decode()} if key else {}
        await self.here.loopback.update(target, {**found, "data": data})

    async def bind(self, name: str) -> None:
        cluster = self.chance.choice(CONSUMERS)
        if self.here.get(API_BINDINGS, cluster, name) is not None:
            await self.here.delete(API_BINDINGS, cluster, name)
        elif self.here.get(API_EXPORTS, "provider", name) is not None:
            await self.here.bind(cluster, "provider", name)

    async def annotate(self, name: str) -> None:
        obj = self.here.get(API_EXPORTS, "provider", name)
        if obj is not None:
            annotations = {key: value for key, value in obj["metadata"]["annotations"].items() if "extra" not in key}
            if self.chance.random() < 0.7:
                annotations[EXTRA_PREFIX + "x"] = self.chance.choice("abc")
            metadata = {**obj["metadata"], "annotations": annotations}
            await self.here.change(API_EXPORTS, "provider", name, metadata=metadata)

    async def no_slice(self, name: str) -> None:
        if self.here.get(API_EXPORT_ENDPOINT_SLICES, "provider", name) is not None:
            await self.here.delete(API_EXPORT_ENDPOINT_SLICES, "provider", name)

    # --- in the end ---

    def is_right(self) -> None:
        for name in EXPORTS:
            obj = self.here.get(API_EXPORTS, "provider", name)
            bindings = [found for cluster in CONSUMERS if (found := self.here.get(API_BINDINGS, cluster, name))]
            url = endpointslices.endpoint_url(URL, "provider", name)
            urls = [url] if obj is not None and bindings else []
            assert self.urls("elsewhere", f"for-{name}") == urls
            if obj is None:
                continue
            assert self.urls("provider", name) == urls
            self.has_conditions(obj)
            for binding in bindings:
                assert extra_annotations(binding) == extra_annotations(obj)

    def has_conditions(self, obj: Object) -> None:
        name, known = obj["metadata"]["name"], (obj.get("status") or {}).get("identityHash")
        secret = self.here.loopback.get(SECRETS, "provider", "kcp-system", name)
        assert secret is not None
        key = base64.b64decode((secret.get("data") or {}).get("key") or "")
        said = find(obj["status"]["conditions"], "IdentityValid")
        assert said is not None
        assert (said["status"] == "True") == (bool(key) and hashes.identity_hash(key) == known), said

    def urls(self, cluster: str, name: str) -> list[str]:
        status = self.here.found(API_EXPORT_ENDPOINT_SLICES, cluster, name).get("status") or {}
        return [each["url"] for each in status.get("endpoints") or []]


@pytest.mark.parametrize("seed", range(12))
async def test_exports_and_their_slices_settle_from_anything(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with cell(tmp_path, chance) as here:
        world = World(here, chance)
        await world.begin()
        for _ in range(ROUNDS):
            for _ in range(chance.randrange(1, STEPS)):
                await world.step()
            await here.settle()
            world.look()
            world.is_right()
