"""Conversion by a webhook: the requests, their number, and the cached results."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from atoll.machinery.apiserver.admission.chain import Admission
from atoll.machinery.apiserver.call.call import Call, Plan, View
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.apiserver.conversion import Conversions, ConvertedObject, conversions
from atoll.machinery.apiserver.writing import commit
from atoll.machinery.apiserver.writing.target import Target, make_call
from atoll.machinery.egress import Egress, policy
from atoll.machinery.kinds.conversion import Unconverted
from atoll.machinery.kinds.custom import kinds_of_crd
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.meta.status import ApiError, Timeout
from atoll.machinery.storage.lmdb_store import open_store
from harness.data.manifests import established
from harness.data.stores import store_options
from harness.servers.stand_ins.webhook import Odd, WebhookServer, converted


def swap(obj: Object, api_version: str) -> Object:
    return {**obj, "apiVersion": api_version, "spec": {"said": f"{obj['spec']['said']}>{api_version[-2:]}"}}


@pytest.fixture
def webhook() -> Iterator[WebhookServer]:
    with WebhookServer(lambda review: converted(review, swap)) as server:
        yield server


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
async def asking(registry: CollectorRegistry) -> AsyncIterator[Conversions]:
    egress = Egress(policy("127.0.0.0/8"))
    yield Conversions(egress, registry)
    await egress.close()


def kinds(webhook: WebhookServer, *, generation: int = 1) -> dict[str, Kind]:
    said = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"said": {"type": "string"}}}}}
    versions = [
        {"name": name, "served": True, "storage": name == "v2", "schema": {"openAPIV3Schema": said}}
        for name in ("v1", "v2")
    ]
    client = {"url": webhook.url, "caBundle": webhook.ca_bundle}
    conversion = {"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}}
    names = {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"}
    spec = {"group": "example.com", "scope": "Cluster", "names": names, "versions": versions, "conversion": conversion}
    definition = {"metadata": {"name": "foos.example.com", "generation": generation}, "spec": spec}
    return {kind.version: kind for kind in kinds_of_crd(established(definition))}


def foo(name: str, version: str = "v2", revision: int = 1) -> bytes:
    metadata = {"name": name, "uid": name, "resourceVersion": str(revision), "annotations": {"kcp.io/cluster": "c"}}
    return encode_json(
        {"apiVersion": f"example.com/{version}", "kind": "Foo", "metadata": metadata, "spec": {"said": name}}
    )


def said(values: list[bytes]) -> list[str]:
    return [json.loads(value)["spec"]["said"] for value in values]


def sizes(webhook: WebhookServer) -> list[int]:
    return [len(call.body["request"]["objects"]) for call in webhook.calls]


async def test_what_is_in_its_version_stays_the_same_bytes(webhook: WebhookServer, asking: Conversions) -> None:
    kind = kinds(webhook)["v2"]
    values = [foo("a"), foo("b")]
    assert await asking.served(kind, values) == values
    assert webhook.calls == []


async def test_order_is_kept_where_only_some_have_to_be_converted(webhook: WebhookServer, asking: Conversions) -> None:
    kind = kinds(webhook)["v1"]
    found = await asking.served(kind, [foo("a"), foo("b", "v1"), foo("c"), foo("d", "v1")])
    assert said(found) == ["a>v1", "b", "c>v1", "d"]
    assert sizes(webhook) == [2]


async def test_large_lists_are_asked_for_in_chunks(
    webhook: WebhookServer, asking: Conversions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversions, "CHUNK_OBJECTS", 100)
    kind = kinds(webhook)["v1"]
    found = await asking.served(kind, [foo(f"o{index}") for index in range(250)])
    assert said(found) == [f"o{index}>v1" for index in range(250)]
    assert sizes(webhook) == [100, 100, 50]


async def test_a_chunk_is_bounded_in_bytes_but_takes_one_object_always(
    webhook: WebhookServer, asking: Conversions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversions, "CHUNK_BYTES", len(foo("a")) * 2)
    await asking.served(kinds(webhook)["v1"], [foo("a"), foo("b"), foo("c" * 500), foo("d")])
    assert sizes(webhook) == [2, 1, 1]


async def test_the_same_state_is_asked_for_once(webhook: WebhookServer, asking: Conversions) -> None:
    kind = kinds(webhook)["v1"]
    await asking.served(kind, [foo("a", revision=1)])
    assert said(await asking.served(kind, [foo("a", revision=1)])) == ["a>v1"]
    assert sizes(webhook) == [1]
    await asking.served(kind, [foo("a", revision=2)])
    assert sizes(webhook) == [1, 1]


async def test_another_definition_does_not_share_answers(webhook: WebhookServer, asking: Conversions) -> None:
    await asking.served(kinds(webhook)["v1"], [foo("a")])
    with WebhookServer(lambda review: converted(review, swap)) as other:
        await asking.served(kinds(other)["v1"], [foo("a")])
        assert sizes(other) == [1]


async def test_an_answer_is_kept_for_a_while_only(
    webhook: WebhookServer, asking: Conversions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversions, "KEEP_S", 0.0)
    kind = kinds(webhook)["v1"]
    await asking.served(kind, [foo("a")])
    await asking.served(kind, [foo("a")])
    assert sizes(webhook) == [1, 1]


async def test_many_who_ask_at_once_share_one_question(webhook: WebhookServer, asking: Conversions) -> None:
    release = threading.Event()

    def slow(review: Object) -> Object:
        release.wait(60)
        return converted(review, swap)

    webhook.answer = slow
    kind = kinds(webhook)["v1"]
    tasks = [asyncio.create_task(asking.served(kind, [foo("a")])) for _ in range(100)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    release.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError), "who asked first may leave"
    assert [said(each) for each in found[1:] if isinstance(each, list)] == [["a>v1"]] * 99
    assert sizes(webhook) == [1]


async def test_a_failure_is_told_to_everybody_and_not_kept(
    webhook: WebhookServer, asking: Conversions, registry: CollectorRegistry
) -> None:
    kind = kinds(webhook)["v1"]
    webhook.answer = lambda review: Odd(500)
    results = await asyncio.gather(*(asking.served(kind, [foo("a")]) for _ in range(3)), return_exceptions=True)
    assert all(isinstance(each, ApiError) and each.code == 500 for each in results)
    assert len(webhook.calls) == 1
    webhook.answer = lambda review: converted(review, swap)
    assert said(await asking.served(kind, [foo("a")])) == ["a>v1"]
    name = "apiserver_conversion_webhook_request_total"
    failed = {"result": "failure", "failure_type": "webhook_call_failure"}
    assert registry.get_sample_value(name, failed) == 1
    assert registry.get_sample_value(name, {"result": "success", "failure_type": ""}) == 1


async def test_objects_of_a_changed_definition_are_pruned_though_they_need_no_webhook(
    webhook: WebhookServer, asking: Conversions
) -> None:
    stored: dict[str, Any] = json.loads(foo("a"))
    stored["spec"]["gone"] = 1
    (value,) = await asking.served(kinds(webhook, generation=2)["v2"], [encode_json(stored)])
    assert json.loads(value)["spec"] == {"said": "a"}


async def test_a_write_plans_with_what_was_fetched_for_it(webhook: WebhookServer, asking: Conversions) -> None:
    kind = kinds(webhook)["v1"]
    known = ConvertedObject(kind, asking)
    obj: Object = json.loads(foo("a"))
    assert known.kind.from_stored is not None
    with pytest.raises(Unconverted) as caught:
        known.kind.from_stored(obj)
    await known.fetch(caught.value)
    assert known.kind.from_stored(obj)["spec"]["said"] == "a>v1"
    # The shared kind is unchanged.
    assert kind.from_stored is not None
    with pytest.raises(Unconverted):
        kind.from_stored(obj)


def test_one_version_never_needs_a_webhook(webhook: WebhookServer) -> None:
    kind = kinds(webhook)["v2"]
    assert kind.conversion is not None
    definition: Object = {"group": "example.com", "scope": "Cluster", "names": {"plural": "foos", "kind": "Foo"}}
    definition["versions"] = [{"name": "v1", "served": True, "storage": True, "schema": {}}]
    definition["conversion"] = {"strategy": "Webhook", "webhook": {"clientConfig": {"url": webhook.url}}}
    (only,) = kinds_of_crd(established({"metadata": {}, "spec": definition}))
    assert (only.conversion, only.from_stored) == (None, None)


async def test_a_write_ends_when_its_conversions_take_too_long(
    webhook: WebhookServer, asking: Conversions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()

    def slow(review: Object) -> Object:
        release.wait(60)
        return converted(review, swap)

    def plan(call: Call, view: View) -> Plan:
        assert call.kind.from_stored is not None
        call.kind.from_stored(json.loads(foo("a")))
        raise AssertionError("it was converted")

    webhook.answer = slow
    monkeypatch.setattr(commit, "ANSWERS_TIMEOUT_S", 0.1)
    store = open_store(store_options(tmp_path))
    whole = commit.WriteService(store, Catalogs(()), Admission(()), asking)
    call = make_call(Target(kinds(webhook)["v1"], "c", "", "a"), "update", None, "test")
    with pytest.raises(Timeout, match="context deadline exceeded"):
        await whole.commit(call, plan)
    release.set()
    await store.close()
