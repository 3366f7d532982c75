"""Selectors of devices: expressions over the attributes and capacities of one, compiled to check them.

The language is imported with the first selector. A write with selectors is checked in slices, because a text of some
kilobytes takes tens of milliseconds. Invariant: a stored selector may call functions that a new one may not yet.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING

from atoll.machinery.kinds.checks import objects, text
from atoll.machinery.kinds.kubernetes.validation.devices import DOMAIN_SIZE, ID_SIZE, bounded
from atoll.machinery.kinds.kubernetes.validation.rules import Errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.process.time_slicing import checkpoint, require_slices, slice_pause
from atoll.machinery.schema.fielderrors import forbidden, invalid, required, too_long

if TYPE_CHECKING:
    from atoll.machinery.cel.environment import Environment
    from atoll.machinery.cel.functions import Node, SizeEstimator
    from atoll.machinery.cel.sizes import SizeEstimate

_MAX_SELECTORS, _TEXT_SIZE, _MAX_COST = 32, 10 * 1024, 1_000_000
_MAX_ATTRIBUTES, _VALUE_SIZE = 32, 64
_TOO_COMPLEX = "too complex, exceeds cost limit"
#: Expressions whose result is kept: classes repeat those of a vendor.
_REMEMBERED = 64
#: The most elements of a part of a device by its path, whose keys are `*`.
_SIZES = {
    ("driver",): DOMAIN_SIZE,
    ("allowMultipleAllocations",): 1,
    ("attributes",): _MAX_ATTRIBUTES,
    ("attributes", "@keys"): DOMAIN_SIZE,
    ("attributes", "*"): _MAX_ATTRIBUTES,
    ("attributes", "*", "@keys"): ID_SIZE,
    ("attributes", "*", "*"): _VALUE_SIZE,
    ("capacity",): _MAX_ATTRIBUTES,
    ("capacity", "@keys"): DOMAIN_SIZE,
    ("capacity", "*"): _MAX_ATTRIBUTES,
    ("capacity", "*", "@keys"): ID_SIZE,
}


def selectors(obj: Object, at: str, *, is_stored: bool = False) -> Errors:
    """Check the selectors of a class or a request."""

    def check(selector: Object, field: str) -> Errors:
        source = selector.get("cel")
        if source is None:
            yield required(f"{field}.cel")
        elif isinstance(source, dict):
            yield from _expression(text(source, "expression"), f"{field}.cel.expression", is_stored)

    yield from bounded(objects(obj, "selectors"), f"{at}.selectors", _MAX_SELECTORS, check)


def _expression(source: str, field: str, is_stored: bool) -> Errors:
    if len(source.encode()) > _TEXT_SIZE:
        yield too_long(field, _TEXT_SIZE)
    elif (problem := _problem(source, is_stored)) == _TOO_COMPLEX:
        yield forbidden(field, problem)
    elif problem:
        yield invalid(field, source, problem)


@lru_cache(maxsize=_REMEMBERED)
def _problem(source: str, is_stored: bool) -> str:
    """Return what is wrong with an expression; empty if nothing is."""
    require_slices()
    checkpoint()
    from atoll.machinery.cel import types
    from atoll.machinery.cel.errors import CompileError

    try:
        program = _environment(is_stored).compile(source, slice_pause())
    except CompileError as error:
        return f"compilation failed: {error}"
    if program.type not in (types.BOOL, types.ANY):
        return f"must evaluate to bool or the unknown type, not {program.type}"
    return _TOO_COMPLEX if program.estimate(_sizes()).max > _MAX_COST else ""


@cache
def _environment(is_stored: bool) -> Environment:
    from atoll.machinery.cel.ext import BINDINGS
    from atoll.machinery.cel.libraries.quantity import TYPE as QUANTITY
    from atoll.machinery.cel.types import ANY, BOOL, STRING, Field, MapType, ObjectType
    from atoll.machinery.kinds.rules.program import base_environment

    fields = {
        "driver": Field(STRING),
        "allowMultipleAllocations": Field(BOOL),
        "attributes": Field(MapType(STRING, MapType(STRING, ANY))),
        "capacity": Field(MapType(STRING, MapType(STRING, QUANTITY))),
    }
    device = ObjectType("kubernetes.DRADevice", fields)
    return base_environment(is_new=not is_stored).extend({"device": device}, [BINDINGS], [device])


@cache
def _sizes() -> SizeEstimator:
    from atoll.machinery.cel.sizes import SizeEstimate

    class Sizes:
        def size(self, node: Node) -> SizeEstimate | None:
            return None if (most := _most(node.path)) is None else SizeEstimate(0, most)

    return Sizes()


def _most(path: tuple[str, ...]) -> int | None:
    """Return the most elements of the data at a path that begins with the variable; None for any other data."""
    if path[:1] != ("device",):
        return None
    steps = (step if index == 0 or step == "@keys" else "*" for index, step in enumerate(path[1:]))
    return _SIZES.get(tuple(steps))
