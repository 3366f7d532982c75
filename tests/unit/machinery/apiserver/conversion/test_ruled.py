"""Conversion by rules: cost limits, and pauses for the event loop."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from atoll.machinery.apiserver.conversion.ruled import RuleConversion
from atoll.machinery.kinds.apiconversion import ConversionError, Converter
from atoll.machinery.kinds.custom import kinds_of_resource_schema
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.objects import Object, encode_json

TEXT = {"type": "string"}
MANY = "[" + ",".join("0" for _ in range(40)) + "]"
#: Some hundred thousand units: within the limits of cost, and far from the first pause.
LONG = f"{MANY}.all(a, {MANY}.all(b, {MANY}.all(c, self != 'y'))) ? self : self"
DEADLINE_S = 60.0


def kind(transformation: str) -> Kind:
    inner = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": TEXT, "b": TEXT}}}}
    made: Object = {
        "spec": {
            "group": "example.com",
            "names": {"plural": "widgets", "kind": "Widget"},
            "scope": "Namespaced",
            "versions": [
                {"name": name, "served": True, "storage": name == "v1", "schema": inner} for name in ("v1", "v2")
            ],
        }
    }
    rule = {"field": "spec.a", "destination": "spec.b", "transformation": transformation}
    rules = {"conversions": [{"from": "v1", "to": "v2", "rules": [rule]}]}
    return next(each for each in kinds_of_resource_schema(made, "ab", rules) if each.version == "v2")


async def convert(ruled: RuleConversion, transformation: str, *values: str) -> list[Any]:
    found = kind(transformation)
    assert found.conversion is not None and isinstance(found.conversion.by, Converter)
    objects = [
        encode_json({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "x"}, "spec": {"a": value}})
        for value in values
    ]
    by, conversion = found.conversion.by, found.conversion
    return [json.loads(each) for each in await ruled.convert(by, conversion, objects, "example.com/v2", DEADLINE_S)]


async def test_objects_come_back_in_order_pruned_and_in_the_version_asked_for() -> None:
    registry = CollectorRegistry()
    found = await convert(RuleConversion(30.0, registry), "self + '!'", "1", "2")
    assert [each["spec"] for each in found] == [{"a": "1", "b": "1!"}, {"a": "2", "b": "2!"}]
    assert {each["apiVersion"] for each in found} == {"example.com/v2"}
    assert registry.get_sample_value("conversion_cel_transformation_duration_seconds_count") == 2


async def test_an_object_has_its_time_and_no_more() -> None:
    with pytest.raises(ConversionError, match="transformations took longer than 0s"):
        await convert(RuleConversion(0.0, CollectorRegistry()), LONG, "x")


async def test_the_loop_turns_while_rules_are_computed() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await convert(RuleConversion(30.0, CollectorRegistry()), LONG, *map(str, range(3)))
    counting.cancel()
    assert turns > 3


async def test_what_grows_beyond_an_object_is_no_object() -> None:
    grows = "[self, self, self, self]"
    with pytest.raises(ConversionError, match="larger than"):
        await convert(RuleConversion(30.0, CollectorRegistry()), grows, "x" * 1_000_000)
