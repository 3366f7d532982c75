"""Closures for variables, fields, presence tests, indexing and optional selection.

Called by the compiler. Invariant: a field with a declared conversion is converted on every selection; an absent key is
the error `no such key: <name>`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from atoll.machinery.cel.compiler.activation import ABSORBED, COST, Activation, Eval
from atoll.machinery.cel.compiler.code import Code
from atoll.machinery.cel.equality import MISSING
from atoll.machinery.cel.errors import EvaluationError, NoSuchKey
from atoll.machinery.cel.std.indexing import index as index_any
from atoll.machinery.cel.std.indexing import index_list, index_map
from atoll.machinery.cel.std.optionals import find_in
from atoll.machinery.cel.structures import Structure, StructureType
from atoll.machinery.cel.types import Field, Kind, ObjectType, Type, is_optional
from atoll.machinery.cel.values import NONE, Optional_

Convert = Callable[[Any], Any] | None


def variable(slot: int) -> Code:
    """Return the code of a global or a loop variable."""

    def run(activation: Activation) -> Any:
        return activation[slot]

    return Code(run, 1, attribute=True, base=1, slot=slot)


def field_of(of: Type, name: str) -> Field | None:
    """Return the declaration of a field, or None if the type declares no fields."""
    return of.fields.get(name) if isinstance(of, ObjectType) else None


def as_attribute(code: Code) -> Code:
    """Return the code as the start of a path; cel-go charges for that step of a call or a literal."""
    return code if code.attribute else Code(code.run, code.cost + 1, attribute=True, base=1)


def select(operand: Code, of: Type, name: str) -> Code:
    """`operand.name`, with `of` the static type of the operand."""
    operand = as_attribute(operand)
    if isinstance(of, StructureType):
        return Code(_select_structure(operand.run, name), operand.cost + 1, attribute=True, base=operand.base)
    if of.kind is Kind.OBJECT or of.kind is Kind.MAP:
        field = field_of(of, name)
        key = name if field is None or field.name is None else field.name
        return _select_key(operand, key, name, None if field is None else field.convert)
    return Code(
        _select_dyn(operand.run, name, _optional_key(of, name)), operand.cost, attribute=True, base=operand.base
    )


def _select_structure(inner: Eval, name: str) -> Eval:
    """Select from a structure: a part of it is plain JSON from here on."""

    def run(activation: Activation) -> Any:
        value = inner(activation)
        found = value.native().get(name, MISSING)
        return value.absent(name) if found is MISSING else found

    return run


def _native_fields(operand: Code, of: Type) -> Code:
    """Return the fields of a structure that are set, as a map; any other operand as it is."""
    if not isinstance(of, StructureType):
        return operand
    inner = operand.run
    return Code(lambda activation: inner(activation).native(), operand.cost, attribute=True, base=operand.base)


def _select_key(operand: Code, key: str, name: str, convert: Convert) -> Code:
    cost, base = operand.cost + 1, operand.base
    keys = (*operand.keys, key)
    if operand.slot >= 0 and convert is None and key == name and len(keys) <= 3:
        return Code(_path(operand.slot, keys), cost, attribute=True, base=base, slot=operand.slot, keys=keys)
    inner = _step_from(operand, 1)

    def run(activation: Activation) -> Any:
        of = inner(activation)
        try:
            return of[key]
        except (KeyError, TypeError):
            raise NoSuchKey(name) from None

    def run_converted(activation: Activation) -> Any:
        of = inner(activation)
        try:
            value = of[key]
        except (KeyError, TypeError):
            raise NoSuchKey(name) from None
        return None if value is None else convert(value)  # type: ignore[misc]

    return Code(run if convert is None else run_converted, cost, attribute=True, base=base)


def _path(slot: int, keys: tuple[str, ...]) -> Eval:
    """Return one closure for `variable.a.b.c`."""
    first = keys[0]
    if len(keys) == 1:

        def one(activation: Activation) -> Any:
            try:
                return activation[slot][first]
            except (KeyError, TypeError):
                raise NoSuchKey(first) from None

        return one
    second = keys[1]
    if len(keys) == 2:

        def two(activation: Activation) -> Any:
            try:
                return activation[slot][first][second]
            except (KeyError, TypeError):
                raise _missing_key_error(activation, slot, keys) from None

        return two
    third = keys[2]

    def three(activation: Activation) -> Any:
        try:
            return activation[slot][first][second][third]
        except (KeyError, TypeError):
            raise _missing_key_error(activation, slot, keys) from None

    return three


def _missing_key_error(activation: Activation, slot: int, keys: tuple[str, ...]) -> NoSuchKey:
    """Return the error of the first missing key on a path, and refund the later steps, which are charged in advance."""
    value = activation[slot]
    for at, key in enumerate(keys):
        if not isinstance(value, dict) or key not in value:
            activation[COST] -= len(keys) - 1 - at
            return NoSuchKey(key)
        value = value[key]
    return NoSuchKey(keys[-1])


def _step_from(code: Code, cost: int) -> Eval:
    """Return the operand of a step; if it fails, the step's cost, charged in advance, is refunded."""
    operand = code.run
    if code.slot >= 0 and not code.keys:
        return operand

    def run(activation: Activation) -> Any:
        try:
            return operand(activation)
        except ABSORBED:
            activation[COST] -= cost
            raise

    return run


class _Key(NamedTuple):
    """The key of a field in JSON, and the conversion of its values."""

    name: str
    convert: Convert


def _optional_key(of: Type, name: str) -> _Key:
    """Return key and conversion of a field of the object in an optional."""
    inner = of.parameters[0] if is_optional(of) else of
    field = field_of(inner, name)
    if field is None:
        return _Key(name, None)
    return _Key(field.name or name, field.convert)


def _select_dyn(inner: Eval, name: str, field: _Key) -> Eval:
    """Select from a value of unknown type; from an optional the result is an optional. Charges itself."""
    key, convert = field

    def run(activation: Activation) -> Any:
        value = inner(activation)
        if isinstance(value, Optional_):
            return _optional_step(activation, value, key, convert)
        activation[COST] += 1
        if isinstance(value, list):
            raise EvaluationError("unsupported index type 'string' in list")
        found = value.get(key, MISSING) if isinstance(value, dict) else find_in(value, key)
        if found is MISSING:
            raise NoSuchKey(name)
        return found

    return run


def _optional_step(activation: Activation, optional: Optional_, key: Any, convert: Convert) -> Optional_:
    if not optional.has_value:
        return NONE
    return _find_optional(activation, optional.value, key, convert)


def _find_optional(activation: Activation, value: Any, key: Any, convert: Convert) -> Optional_:
    """Return the optional of the value under the key; cel-go charges only if it is present."""
    found = find_in(value, key)
    if found is MISSING:
        return NONE
    activation[COST] += 1
    return Optional_(found if convert is None or found is None else convert(found))


def optional_select(operand: Code, of: Type, name: str) -> Code:
    """`operand.?name`."""
    operand = _native_fields(as_attribute(operand), of)
    key, convert = _optional_key(of, name)
    inner = operand.run

    def run(activation: Activation) -> Any:
        value = inner(activation)
        if isinstance(value, Optional_):
            return _optional_step(activation, value, key, convert)
        if isinstance(value, list):
            raise EvaluationError("unsupported index type 'string' in list")
        return _find_optional(activation, value, key, convert)

    return Code(run, operand.cost, attribute=True, base=operand.base)


def has(operand: Code, of: Type, name: str) -> Code:
    """Return the code of `has(operand.name)`: it costs its path and the test, but not the step.

    The test of a path that begins with `?:` is free.
    """
    operand = _native_fields(as_attribute(operand), of)
    inner, test_cost = operand.run, operand.base
    field = field_of(of, name)
    key = name if field is None or field.name is None else field.name
    if of.kind is Kind.OBJECT or of.kind is Kind.MAP:
        inner = _step_from(operand, test_cost)

        def run_typed(activation: Activation) -> Any:
            value = inner(activation)
            # A null in a nullable field has no fields.
            return isinstance(value, dict) and key in value

        return Code(run_typed, operand.cost, attribute=True)
    key, _ = _optional_key(of, name)

    def run(activation: Activation) -> Any:
        value = inner(activation)
        if isinstance(value, Optional_):
            if not value.has_value:
                return False
            value = value.value
        activation[COST] += test_cost
        if isinstance(value, list):
            raise EvaluationError("unsupported index type 'string' in list")
        if isinstance(value, Structure):
            return value.dynamic(key) is not MISSING
        return isinstance(value, dict) and key in value

    return Code(run, operand.inner_cost, attribute=True)


def index(operand: Code, of: Type, at: Code, key_type: Type) -> Code:
    """Return the code of `operand[at]`, with the static types of both."""
    operand = as_attribute(operand)
    cost = operand.cost + at.inner_cost
    if is_optional(of) or of.kind not in (Kind.LIST, Kind.MAP):
        return Code(_index_dyn(operand.run, at.run), cost, attribute=True, base=operand.base)
    found = _step_from(operand, at.inner_cost + 1)
    run = _index_list(found, at) if of.kind is Kind.LIST else _index_map(found, at, key_type)
    return Code(run, cost + 1, attribute=True, base=operand.base)


def _index_list(items: Eval, at: Code) -> Eval:
    position = at.run

    def run(activation: Activation) -> Any:
        return index_list(items(activation), position(activation))

    return run


def _index_map(of: Eval, at: Code, key_type: Type) -> Eval:
    key = at.run
    if key_type.kind is Kind.STRING:

        def run_text(activation: Activation) -> Any:
            wanted = None
            try:
                values = of(activation)
                wanted = key(activation)
                return values[wanted]
            except KeyError:
                raise NoSuchKey(wanted) from None

        return run_text

    def run(activation: Activation) -> Any:
        return index_map(of(activation), key(activation))

    return run


def _index_dyn(operand: Eval, at: Eval) -> Eval:
    def run(activation: Activation) -> Any:
        value = operand(activation)
        if isinstance(value, Optional_):
            return NONE if not value.has_value else _find_optional(activation, value.value, at(activation), None)
        activation[COST] += 1
        return index_any(value, at(activation))

    return run


def optional_index(operand: Code, at: Code) -> Code:
    """`operand[?at]`."""
    operand = as_attribute(operand)
    inner, key = _step_from(operand, at.inner_cost), at.run

    def run(activation: Activation) -> Any:
        value = inner(activation)
        if isinstance(value, Optional_):
            if not value.has_value:
                return NONE
            value = value.value
        return _find_optional(activation, value, key(activation), None)

    return Code(run, operand.cost + at.inner_cost, attribute=True, base=operand.base)
