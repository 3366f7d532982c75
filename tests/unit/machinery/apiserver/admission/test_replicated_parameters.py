"""Parameters of a policy of another shard, as the rows of that shard say."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from atoll.machinery.apiserver.admission.policies.errors import ConfigurationError
from atoll.machinery.apiserver.admission.policies.parameters import Parameters
from atoll.machinery.apiserver.admission.policies.policy import Binding, BoundPolicy, Policy
from atoll.machinery.apiserver.admission.policies.replicated_parameters import reference_of, row_key
from atoll.machinery.meta.objects import Object
from atoll.machinery.storage.contract import ClusterRoute, Replica
from harness.clients.api import configmap
from harness.clients.policies import binding, policy
from harness.servers.in_process.minimal_shard import Cell, cell

THERE, SHARD = "there", "east"
NOT_HERE = f"parameters of the logical cluster {THERE} have not arrived yet"


def bound(action: str = "Deny", kind: str = "ConfigMap", **reference: object) -> tuple[BoundPolicy, Binding]:
    param_kind = {"apiVersion": "v1", "kind": kind}
    made = policy("p", "true", paramKind=param_kind)
    ref = {"parameterNotFoundAction": action, **reference}
    pair = Binding.of(binding("p", "p", paramRef=ref))
    return BoundPolicy(Policy.of(made), (pair,), THERE), pair


NAMED = bound(name="limit")


class Reader:
    """A shard that follows another one, and looks parameters up."""

    def __init__(self, here: Cell) -> None:
        self._here, self._parameters, self._revision = here, Parameters(here.core.catalogs), 0

    async def write(self, *rows: Object, of: tuple[BoundPolicy, Binding] = NAMED, **said: object) -> None:
        """Write a row as the other shard sends it."""
        made, pair = of
        params = made.policy.params
        assert params is not None
        assert pair.params is not None
        key = row_key(THERE, pair)
        spec = {"reference": reference_of(params, pair.params), "params": [json.dumps(each) for each in rows]}
        self._revision += 1
        metadata = {"name": key.name, "resourceVersion": f"{self._revision:016d}"}
        value = json.dumps({"metadata": metadata, "spec": {**spec, **said}}).encode()
        await self._here.store.submit([Replica(SHARD, key, value, self._revision, 1)])

    def of(self, of: tuple[BoundPolicy, Binding] = NAMED, namespace: str = "default") -> Sequence[Object | None]:
        with self._here.store.snapshot() as snapshot:
            kind = self._parameters.kind(snapshot, of[0])
            return self._parameters.of(snapshot, of[0], kind, of[1], namespace)


@pytest.fixture
async def reader(tmp_path: Path) -> AsyncIterator[Reader]:
    async with cell(tmp_path) as here:
        await here.store.submit([ClusterRoute(THERE, SHARD, 0)])
        yield Reader(here)


async def test_a_row_counts_only_for_the_kind_and_the_reference_that_it_was_made_for(reader: Reader) -> None:
    limit = configmap("limit", namespace="default")
    with pytest.raises(ConfigurationError, match=NOT_HERE):
        reader.of()
    await reader.write(limit, namespaced=True)
    assert reader.of() == [limit]
    others = (bound(name="other"), bound(name="limit", namespace="team"), bound(name="limit", kind="Limit"))
    for other in (*others, bound(selector={"matchLabels": {"a": "b"}}), bound(selector={})):
        with pytest.raises(ConfigurationError, match=NOT_HERE):
            reader.of(other)
    assert reader.of(bound("Allow", name="limit")) == [limit]


async def test_what_is_not_replicated_is_an_error_whatever_is_to_happen_without_parameters(reader: Reader) -> None:
    lenient = bound("Allow", name="limit")
    await reader.write(of=lenient, error="it is too large")
    with pytest.raises(ConfigurationError, match="it is too large"):
        reader.of(lenient)


async def test_the_namespace_is_that_of_the_reference_or_else_of_the_request(reader: Reader) -> None:
    limits = [configmap("limit", namespace=space) for space in ("default", "team")]
    await reader.write(*limits, namespaced=True)
    assert reader.of(namespace="team") == [limits[1]]
    with pytest.raises(ConfigurationError, match="no params found"):
        reader.of(namespace="empty")
    with pytest.raises(ConfigurationError, match="cannot use namespaced paramRef"):
        reader.of(namespace="")
    fixed = bound(name="limit", namespace="default")
    await reader.write(limits[0], of=fixed, namespaced=True)
    assert reader.of(fixed, namespace="team") == [limits[0]]


async def test_parameters_of_a_cluster_scoped_kind_have_no_namespace(reader: Reader) -> None:
    await reader.write(configmap("limit"))
    assert reader.of(namespace="team") == [configmap("limit")]
    fixed = bound(name="limit", namespace="default")
    await reader.write(of=fixed)
    with pytest.raises(ConfigurationError, match="must not be provided for a cluster-scoped"):
        reader.of(fixed)


async def test_a_change_of_a_row_counts_at_once(reader: Reader) -> None:
    for text in ("one", "two"):
        await reader.write(configmap("limit", {"text": text}))
        (found,) = reader.of()
        assert found is not None
        assert found["data"] == {"text": text}
