"""Cases of structural schemas: unknown fields, pruning, defaulting and validation messages."""

from __future__ import annotations

import copy
from functools import lru_cache
from typing import Any

from atoll.machinery.schema.structural.structural_schema import StructuralSchema, compile_schema
from contract.oracle.draw import Object, Schemas, Values, rng_of

_PER_SCHEMA = 10


@lru_cache(maxsize=8)
def _schema(number: int) -> Object:
    return Schemas(rng_of("structural-schema", number), validated=True).root()


@lru_cache(maxsize=8)
def _compiled(number: int) -> StructuralSchema:
    return compile_schema(_schema(number))


def case(number: int) -> Object:
    """An object that fits a random schema in most places; every other one is an update."""
    rng, schema = rng_of("structural", number), _schema(number // _PER_SCHEMA)
    values = Values(rng, wild=0.04)
    made = {"op": "structural", "schema": schema, "object": _whole(values, schema)}
    if number % 2:
        old = _whole(values, schema)
        made["old"] = old
        if rng.random() < 0.7:
            made["object"] = {**copy.deepcopy(old), **_changed(values, old, schema)}
    return made


def _whole(values: Values, schema: Object) -> Object:
    head = {"apiVersion": "example.io/v1", "kind": "Thing", "metadata": {"name": "n"}}
    return {**head, **values.mapping(schema, 6)}


def _changed(values: Values, old: Object, schema: Object) -> Object:
    name = values.rng.choice(list(schema["properties"]))
    return {name: values.changed(old[name], schema["properties"][name])} if name in old else {}


def ours(case: Object) -> Any:
    """The product's result for the object."""
    schema, obj = compile_schema(case["schema"]), copy.deepcopy(case["object"])
    unknown = schema.unknown_fields(obj)
    schema.prune(obj)
    pruned = copy.deepcopy(obj)
    schema.default(obj)
    errors = [str(error) for error in schema.validate(obj, case.get("old"))]
    return {"unknown": sorted(unknown), "pruned": pruned, "defaulted": obj, "errors": sorted(errors)}


def theirs(answer: Any) -> Any:
    """The oracle's answer without what is compared elsewhere; the order of errors of a Go map is nobody's.

    Upstream judges a whole number by whole factors and so calls a multipleOf of 0.5 not positive; the product judges it
    as JSON Schema does.
    """
    if "refused" in answer or "error" in answer:
        return answer
    return {
        "unknown": sorted(answer["unknown"]),
        "pruned": answer["pruned"],
        "defaulted": answer["defaulted"],
        "errors": sorted(error for error in answer["errors"] if "factor MultipleOf declared" not in error),
    }
