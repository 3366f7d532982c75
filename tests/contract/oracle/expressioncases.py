"""Cases of CEL: expressions of every library, with their issues, types, estimates, values, errors and costs."""

from __future__ import annotations

import base64
import json
import math
import struct
from functools import cache
from typing import Any

from atoll.machinery.cel import types
from atoll.machinery.cel.budget import Budget
from atoll.machinery.cel.environment import Environment
from atoll.machinery.cel.errors import BudgetExceeded, CompileError, EvaluationError
from atoll.machinery.cel.libraries.base import base_libraries
from atoll.machinery.cel.sizes import SizeEstimate
from atoll.machinery.cel.values import Duration, Optional_, Timestamp, TypeValue, UInt
from contract.cel.expressions import LIMITS, VARIABLES, Expressions, bindings
from contract.oracle.draw import Object, rng_of

#: The cost limit of one evaluation, as in Kubernetes.
CALL_LIMIT = 1_000_000
_TYPES = {
    "bool": types.BOOL,
    "int": types.INT,
    "uint": types.UINT,
    "double": types.DOUBLE,
    "string": types.STRING,
    "bytes": types.BYTES,
    "dyn": types.DYN,
}


def case(number: int) -> Object:
    """One expression with values of its variables."""
    rng = rng_of("expressions", number)
    text = Expressions(rng).any()
    return {"op": "expression", "expression": text, "types": VARIABLES, "variables": bindings(rng), "sizes": LIMITS}


def _type(text: str) -> types.Type:
    if text in _TYPES:
        return _TYPES[text]
    if text.startswith("list("):
        return types.ListType(_type(text[5:-1]))
    key, value = text[4:-1].split(", ", 1)
    return types.MapType(_type(key), _type(value))


@cache
def _environment() -> Environment:
    return Environment({name: _type(text) for name, text in VARIABLES.items()}, base_libraries(None))


def _bound(value: Any, text: str) -> Any:
    """A value of JSON as a value of a type: JSON does not distinguish 1 from 1u and 1.0."""
    if text == "uint":
        return UInt(value)
    if text == "double":
        return float(value)
    if text == "bytes":
        return base64.b64decode(value)
    return [_bound(item, text[5:-1]) for item in value] if text.startswith("list(") else value


class _Sizes:
    def size(self, node: Any) -> SizeEstimate | None:
        found = LIMITS.get(".".join(node.path)) if node.path else None
        return SizeEstimate(*found) if found else None


def ours(case: Object) -> Any:
    """The product's result for the expression."""
    try:
        program = _environment().compile(case["expression"])
    except CompileError as error:
        return {"issues": str(error)}
    found: Object = {"type": str(program.type), "estimate": list(program.estimate(_Sizes()))}
    bound = {name: _bound(value, VARIABLES[name]) for name, value in case["variables"].items()}
    budget = Budget(None, CALL_LIMIT)
    try:
        found["value"] = plain_value(program.evaluate(bound, budget))
    except (EvaluationError, BudgetExceeded) as error:
        found["error"] = str(error)
    else:
        found["cost"] = budget.spent
    return found


def theirs(answer: Any) -> Any:
    """The oracle's answer in the product's format.

    Types are named as the language's definition names them. The cost of a failed evaluation is left out: upstream still
    evaluates and charges the rest after the failure; clients only see the message.
    """
    if "issues" in answer:
        return {"issues": answer["issues"]}
    found = {name: answer[name] for name in ("type", "estimate", "value", "error", "cost") if name in answer}
    if "error" in found:
        del found["cost"]
    for name, plain in _PLAIN:
        found["type"] = found["type"].replace(name, plain)
    return found


_PLAIN = (("google.protobuf.Duration", "duration"), ("google.protobuf.Timestamp", "timestamp"), ("null_type", "null"))


def plain_value(value: Any) -> Any:
    """A value as the oracle writes it: the name of its type and its content."""
    if value is None or isinstance(value, bool):
        return ["null" if value is None else "bool", value]
    for kind, name, content in _CONVERTERS:
        if isinstance(value, kind):
            return [name, content(value)]
    return ["opaque", value.cel_type.name if hasattr(value, "cel_type") else type(value).__name__]


def _bits(value: float) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", value))[0])


def _entries(value: dict[Any, Any]) -> list[Any]:
    pairs = [[plain_value(key), plain_value(child)] for key, child in value.items()]
    return sorted(pairs, key=lambda pair: json.dumps(pair[0], separators=(",", ":"), ensure_ascii=False).encode())


_CONVERTERS: tuple[tuple[Any, str, Any], ...] = (
    (UInt, "uint", int),
    (int, "int", int),
    (float, "double", lambda value: "nan" if math.isnan(value) else f"{_bits(value):x}"),
    (str, "string", str),
    (bytes, "bytes", lambda value: base64.b64encode(value).decode()),
    (Duration, "duration", lambda value: str(value.nanos)),
    (Timestamp, "timestamp", lambda value: "{}.{:09d}".format(*divmod(value.nanos, 10**9))),
    (TypeValue, "type", lambda value: value.name),
    (Optional_, "optional", lambda value: plain_value(value.value) if value.has_value else None),
    ((list, tuple), "list", lambda value: [plain_value(item) for item in value]),
    (dict, "map", _entries),
)
