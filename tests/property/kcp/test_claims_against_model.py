"""Labels of permission claims against a model, after random sequences of writes and edits of claims.

A real store with admission and all controllers; the model has only the writes, and computes the labels of each object
by its own selectors and hashes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import encode
from atoll.machinery.meta.status import ApiError
from atoll.machinery.meta.types import API_BINDINGS, API_EXPORTS, CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS
from atoll.machinery.storage.contract import Put
from harness.oracles.claim_labels import claim_pair, claimed, reflexive_pair
from harness.servers.in_process.shard import InsideShard, shard_inside
from harness.tiers import every

Object = dict[str, Any]
TYPES = {"configmaps": CONFIG_MAPS, "secrets": SECRETS, "serviceaccounts": SERVICE_ACCOUNTS}
KINDS = {"configmaps": "ConfigMap", "secrets": "Secret", "serviceaccounts": "ServiceAccount"}
EXPORTS, NAMES = ("one", "two"), tuple("abcde")
STEPS, SEEDS = 40, 4


def matches(selector: Object, labels: dict[str, str]) -> bool:
    """Whether a selector matches, implemented separately."""
    if selector.get("matchAll"):
        return True
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for each in selector.get("matchExpressions") or []:
        key, operator, values = each["key"], each["operator"], each.get("values", [])
        holds = {
            "In": key in labels and labels.get(key) in values,
            "NotIn": labels.get(key) not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }[operator]
        if not holds:
            return False
    return True


class Model:
    """The writes, and the labels that follow from them."""

    def __init__(self, provider: str) -> None:
        self.provider = provider
        self.exports: dict[str, list[str]] = {name: [] for name in EXPORTS}
        self.bindings: dict[str, list[Object]] = {}
        self.objects: dict[tuple[str, str], dict[str, str]] = {}

    def labels(self, resource: str, labels: dict[str, str]) -> dict[str, str]:
        """The labels of claims on an object of a kind with these labels of its own."""
        found: dict[str, str] = {}
        for export, claims in self.bindings.items():
            for claim in claims:
                if claim["resource"] != resource or claim["state"] != "Accepted":
                    continue
                if resource in self.exports[export] and matches(claim["selector"], labels):
                    found.update([claim_pair(self.provider, export, "", resource)])
        return found

    def applied(self, export: str) -> set[str]:
        granted = (each["resource"] for each in self.bindings[export] if each["state"] == "Accepted")
        return {resource for resource in granted if resource in self.exports[export]}


def a_selector(drawn: random.Random) -> Object:
    return drawn.choice(
        [
            {"matchAll": True},
            {"matchLabels": {"team": drawn.choice("xy")}},
            {"matchExpressions": [{"key": "team", "operator": "In", "values": ["x"]}]},
            {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["x"]}]},
            {"matchLabels": {"team": "x"}, "matchExpressions": [{"key": "old", "operator": "DoesNotExist"}]},
            {"matchExpressions": [{"key": "old", "operator": "Exists"}]},
        ]
    )


def some_labels(drawn: random.Random, provider: str) -> dict[str, str]:
    """Labels of a writer, sometimes with labels of claims."""
    labels = {}
    if drawn.random() < 0.7:
        labels["team"] = drawn.choice("xy")
    if drawn.random() < 0.3:
        labels["old"] = "yes"
    if drawn.random() < 0.3:
        labels.update([claim_pair(provider, drawn.choice(EXPORTS), "", drawn.choice(list(TYPES)))])
    return labels


class Sequence:
    """One random sequence on a provider's and a consumer's cluster."""

    def __init__(self, shard: InsideShard, clusters: tuple[str, str], seed: int) -> None:
        self.shard, (self.provider, self.consumer) = shard, clusters
        self.drawn, self.model = random.Random(seed), Model(clusters[0])

    async def run(self) -> None:
        for name in EXPORTS:
            body = {"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": name}, "spec": {}}
            await self.write(API_EXPORTS, self.provider, "", name, body)
        await self.shard.until_idle()
        steps: list[Callable[[], Any]] = [self.put, self.put, self.put, self.delete, self.edit, self.edit, self.claim]
        for _ in range(STEPS):
            await self.drawn.choice([*steps, self.unbind])()
            for _ in range(self.drawn.randrange(4)):
                # Writes of controllers in between do not matter.
                await asyncio.sleep(0)
        await self.shard.until_idle()

    async def write(self, type: ResourceType, cluster: str, namespace: str, name: str, body: Object) -> None:
        """Create or replace an object, retried on conflicts."""
        target = self.shard.target(type, cluster, namespace, name)
        for _ in range(20):
            old = self.shard.loopback.get(type, cluster, namespace, name)
            try:
                if old is None:
                    await self.shard.loopback.create(target, body)
                else:
                    kept = {**old["metadata"], "labels": body["metadata"].get("labels", {})}
                    await self.shard.loopback.update(target, {**old, **body, "metadata": kept})
            except ApiError as error:
                assert error.code == 409, error
            else:
                return
        raise AssertionError("never written")

    async def put(self) -> None:
        resource, name = self.drawn.choice(list(TYPES)), self.drawn.choice(NAMES)
        labels = some_labels(self.drawn, self.provider)
        body = {"apiVersion": "v1", "kind": KINDS[resource], "metadata": {"name": name, "labels": labels}}
        await self.write(TYPES[resource], self.consumer, "default", name, body)
        own = {key: value for key, value in labels.items() if key in {"team", "old"}}
        self.model.objects[resource, name] = own

    async def delete(self) -> None:
        if self.model.objects:
            resource, name = self.drawn.choice(sorted(self.model.objects))
            await self.remove(TYPES[resource], "default", name)
            del self.model.objects[resource, name]

    async def remove(self, type: ResourceType, namespace: str, name: str) -> None:
        target = self.shard.target(type, self.consumer, namespace, name)
        await self.shard.loopback.delete(target, DeleteOptions())

    async def claim(self) -> None:
        name = self.drawn.choice(EXPORTS)
        asked = self.drawn.sample(list(TYPES), self.drawn.randrange(len(TYPES) + 1))
        claims = [{"group": "", "resource": each, "verbs": ["*"]} for each in asked]
        old = self.shard.loopback.get(API_EXPORTS, self.provider, "", name)
        assert old is not None
        body = {"metadata": {"name": name}, "spec": {**old["spec"], "permissionClaims": claims}}
        await self.write(API_EXPORTS, self.provider, "", name, body)
        self.model.exports[name] = asked

    async def edit(self) -> None:
        name = self.drawn.choice(EXPORTS)
        claims = [
            {
                "group": "",
                "resource": each,
                "verbs": ["*"],
                "selector": a_selector(self.drawn),
                "state": self.drawn.choice(["Accepted", "Accepted", "Rejected"]),
            }
            for each in self.drawn.sample(list(TYPES), self.drawn.randrange(1, len(TYPES) + 1))
        ]
        reference = {"export": {"path": self.provider, "name": name}}
        body = {
            "apiVersion": "apis.kcp.io/v1alpha2",
            "kind": "APIBinding",
            "metadata": {"name": name},
            "spec": {"reference": reference, "permissionClaims": claims},
        }
        await self.write(API_BINDINGS, self.consumer, "", name, body)
        self.model.bindings[name] = claims

    async def unbind(self) -> None:
        if self.model.bindings and self.drawn.random() < 0.5:
            name = self.drawn.choice(sorted(self.model.bindings))
            await self.remove(API_BINDINGS, "", name)
            del self.model.bindings[name]
            await self.shard.until_idle()

    def check(self) -> None:
        model, get = self.model, self.shard.loopback.get
        for (resource, name), labels in model.objects.items():
            stored = get(TYPES[resource], self.consumer, "default", name)
            assert stored is not None
            assert claimed(stored) == model.labels(resource, labels), (resource, name, labels)
            assert not [key for key in str(stored["metadata"].get("managedFields")).split("'") if "claimed." in key]
        with self.shard.app.store.snapshot() as snapshot:
            for export in EXPORTS:
                for resource, type in TYPES.items():
                    pair = claim_pair(self.provider, export, "", resource)
                    indexed = {key.name for key in snapshot.labelled(*pair, type) if key.namespace == "default"}
                    carrying = {
                        name
                        for (of, name), labels in model.objects.items()
                        if of == resource and pair in model.labels(resource, labels).items()
                    }
                    assert indexed - {"default", "kube-root-ca.crt"} == carrying
        for export in model.bindings:
            binding = get(API_BINDINGS, self.consumer, "", export)
            assert binding is not None
            status = binding["status"]
            listed = {each["resource"] for each in status.get("appliedPermissionClaims", [])}
            assert listed == model.applied(export)
            said = {each["type"]: each["status"] for each in status["conditions"]}
            assert said["PermissionClaimsApplied"] == "True"
            assert claimed(binding) == dict([reflexive_pair(self.provider, export)])


@pytest.mark.parametrize("group", every(4, range(4)))
async def test_objects_carry_what_the_model_says(tmp_path: Path, group: int) -> None:
    async with shard_inside(tmp_path) as shard:
        for seed in range(group * SEEDS, group * SEEDS + SEEDS):
            clusters = await shard.workspace(f"p-{seed}"), await shard.workspace(f"c-{seed}")
            sequence = Sequence(shard, clusters, seed)
            await sequence.run()
            sequence.check()


async def test_what_was_written_without_its_label_gets_it_from_the_log(tmp_path: Path) -> None:
    """Such a write was planned before a claim was accepted, and stored after all other objects were labelled."""
    async with shard_inside(tmp_path) as shard:
        sequence = Sequence(shard, (await shard.workspace("p"), await shard.workspace("c")), 1)
        body = {
            "apiVersion": "apis.kcp.io/v1alpha2",
            "kind": "APIExport",
            "metadata": {"name": "one"},
            "spec": {"permissionClaims": [{"resource": "configmaps", "verbs": ["*"]}]},
        }
        await sequence.write(API_EXPORTS, sequence.provider, "", "one", body)
        granted = {"resource": "configmaps", "verbs": ["*"], "selector": {"matchAll": True}, "state": "Accepted"}
        spec = {"reference": {"export": {"path": sequence.provider, "name": "one"}}, "permissionClaims": [granted]}
        body = {"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "one"}, "spec": spec}
        await sequence.write(API_BINDINGS, sequence.consumer, "", "one", body)
        await shard.until_idle()
        made = await shard.loopback.create(
            shard.target(CONFIG_MAPS, sequence.consumer, "default", "late"),
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}},
        )
        pair = claim_pair(sequence.provider, "one", "", "configmaps")
        assert claimed(made) == dict([pair])
        del made["metadata"]["labels"]
        where = ObjectKey(CONFIG_MAPS, sequence.consumer, "default", "late")
        await shard.app.store.submit([Put(where, *encode(made), int(made["metadata"]["resourceVersion"]))])
        await shard.until_idle()
        found = shard.loopback.get(CONFIG_MAPS, sequence.consumer, "default", "late")
        assert found is not None and claimed(found) == dict([pair])
