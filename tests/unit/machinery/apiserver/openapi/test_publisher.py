"""OpenAPI documents: which are built, when, and which clusters share them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from typing import Any

import msgspec
import pytest

from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.apiserver.openapi import forms, parts, publisher
from atoll.machinery.apiserver.openapi.forms import Form
from atoll.machinery.apiserver.openapi.publisher import OpenApiPublisher
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.objects import Object
from harness.data.openapi import GROUP, catalog_of, definition, keys_of, structure

WIDGETS = definition("widgets", structure(spec=structure(colour={"type": "string"})))
KEY = f"apis/{GROUP}/v1"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kinds whose parts are built, in order."""
    found: list[str] = []
    make = parts.make

    def noted(kind: Kind, form: Form) -> parts.Part:
        found.append(kind.plural)
        return make(kind, form)

    monkeypatch.setattr(parts, "make", noted)
    return found


def _wanted(key: str, *definitions: Object) -> publisher.RequestedDocument:
    wanted = publisher.of_key(catalog_of(*definitions), key)
    assert wanted is not None
    return wanted


async def test_the_index_has_every_key_with_the_hash_of_its_document() -> None:
    ours, catalog = OpenApiPublisher(), catalog_of(WIDGETS)
    paths: dict[str, Any] = json.loads((await ours.index(catalog)).body())["paths"]
    assert list(paths) == keys_of(catalog)
    assert {"api", "apis", "api/v1", f"apis/{GROUP}", KEY, "version", "openid/v1/jwks"} < paths.keys()
    for key in paths:
        document = await ours.document(_wanted(key, WIDGETS), forms.V3)
        assert paths[key]["serverRelativeURL"] == f"/openapi/v3/{key}?hash={document.etag}"
        if key != KEY:
            assert document.etag == hashlib.sha512(document.body()).hexdigest().upper()
        assert json.loads(document.body())["openapi"] == "3.0.0"


async def test_the_index_waits_for_no_document_of_a_definition(made: list[str]) -> None:
    ours, catalog = OpenApiPublisher(), catalog_of(WIDGETS)
    assert KEY.encode() in (await ours.index(catalog)).body()
    assert "widgets" not in made


async def test_equal_apis_share_one_document_and_nothing_is_made_again(made: list[str]) -> None:
    ours = OpenApiPublisher()
    first = await ours.document(_wanted(KEY, WIDGETS), forms.V3)
    assert made == ["widgets"]
    other = definition("gadgets", structure())
    other["spec"]["group"] = "other.example.com"
    again = _wanted(KEY, definition("widgets", structure(spec=structure(colour={"type": "string"}))), other)
    assert ours.kept(again, forms.V3) is first
    assert await ours.document(again, forms.V3) is first
    assert made == ["widgets"]


async def test_one_more_definition_costs_its_own_part_alone(made: list[str]) -> None:
    ours = OpenApiPublisher()
    before = await ours.document(publisher.of_everything(catalog_of(WIDGETS)), forms.V2)
    made.clear()
    more = catalog_of(WIDGETS, definition("gears", structure()))
    after = await ours.document(publisher.of_everything(more), forms.V2)
    assert made == ["gears"]
    assert before.etag != after.etag


async def test_a_changed_definition_gives_a_document_with_another_hash() -> None:
    ours = OpenApiPublisher()
    before = await ours.document(_wanted(KEY, WIDGETS), forms.V3)
    changed = definition("widgets", structure(spec=structure(size={"type": "integer"})))
    after = await ours.document(_wanted(KEY, changed), forms.V3)
    assert before.etag != after.etag
    assert b'"size"' in after.body()


async def test_many_who_ask_at_once_wait_for_one_making(made: list[str]) -> None:
    ours, wanted = OpenApiPublisher(), _wanted(KEY, WIDGETS)
    found = await asyncio.gather(*(ours.document(wanted, forms.V3) for _ in range(5)))
    assert all(each is found[0] for each in found)
    assert made == ["widgets"]


async def test_who_goes_away_does_not_take_the_document_from_others() -> None:
    ours, wanted = OpenApiPublisher(), _wanted(KEY, WIDGETS)
    leaving = asyncio.create_task(ours.document(wanted, forms.V3))
    staying = asyncio.create_task(ours.document(wanted, forms.V3))
    await asyncio.sleep(0)
    leaving.cancel()
    assert (await staying).size_bytes > 0
    assert leaving.cancelled()


async def test_protobuf_has_the_hash_of_the_json() -> None:
    ours, catalog = OpenApiPublisher(), catalog_of(WIDGETS)
    for wanted, json_form, binary in (
        (_wanted(KEY, WIDGETS), forms.V3, forms.V3_BINARY),
        (publisher.of_everything(catalog), forms.V2, forms.V2_BINARY),
    ):
        pair = [await ours.document(wanted, form) for form in (json_form, binary)]
        assert pair[0].etag == pair[1].etag
        assert pair[0].body() != pair[1].body()


async def test_others_run_while_a_large_document_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "SLICE_S", 0.0)
    ours, catalog = OpenApiPublisher(), catalog_of(*(definition(f"kind{index}s", structure()) for index in range(20)))
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await ours.document(publisher.of_everything(catalog), forms.V2)
    task.cancel()
    assert turns > 20


async def test_what_is_kept_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "MAX_BYTES", 100_000)
    ours = OpenApiPublisher()
    first = _wanted("version")
    await ours.document(first, forms.V3)
    assert ours.kept(first, forms.V3) is not None
    await ours.document(_wanted("api/v1"), forms.V3)
    assert ours.kept(first, forms.V3) is None


async def test_a_schema_too_deep_to_walk_is_published_as_an_object() -> None:
    schema: Object = {"type": "string", "x-kubernetes-int-or-string": True}
    for _ in range(2000):
        schema = {"type": "object", "properties": {"a": schema}}
    deep = catalog_of(definition("wells", structure(a={"type": "string"}))).kinds[GROUP, "v1", "wells"]

    class Deep:
        source = schema

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(deep.schema), "source", Deep.source)
        part = parts.make(deep, forms.V3)
    published = json.loads(part.schemas["com.example.shapes.v1.Well"])
    assert published["x-kubernetes-preserve-unknown-fields"] is True


def test_keys_that_are_not_served_lead_nowhere() -> None:
    catalog = catalog_of(WIDGETS)
    for key in ("", "api/v2", "apis/", "apis/nothing.example.com", f"apis/{GROUP}/v2", f"{KEY}/more", "api/v1/x", "x"):
        assert publisher.of_key(catalog, key) is None, key


async def test_a_large_definition_is_made_in_a_thread_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    inline = await OpenApiPublisher().document(_wanted(KEY, WIDGETS), forms.V3)
    threads: list[bool] = []
    make = parts.make

    def noted(kind: Kind, form: Form) -> parts.Part:
        threads.append(threading.current_thread() is threading.main_thread())
        return make(kind, form)

    monkeypatch.setattr(parts, "make", noted)
    monkeypatch.setattr(publisher, "LARGE_BYTES", 0)
    assert (await OpenApiPublisher().document(_wanted(KEY, WIDGETS), forms.V3)).etag == inline.etag
    assert threads == [False]


async def test_a_kind_of_which_less_may_be_done_has_a_document_of_its_own() -> None:
    ours, catalog = OpenApiPublisher(), catalog_of(WIDGETS)
    readable = [
        msgspec.structs.replace(kind, verbs=("get", "list", "watch"), subresources=())
        for kind in catalog.by_version[GROUP, "v1"]
    ]
    whole = await ours.document(_wanted(KEY, WIDGETS), forms.V3)
    wanted = publisher.of_key(Catalog(readable), KEY)
    assert wanted is not None
    less = await ours.document(wanted, forms.V3)
    assert b"createShapesExampleComV1NamespacedWidget" in whole.body()
    assert b"createShapesExampleComV1NamespacedWidget" not in less.body()
