"""The conformance tests of the Common Expression Language, run against Atoll's CEL.

The files are in the Go module cel.dev/expr, which the go command fetches; none of them is in this repository. `run`
returns None for a case that passes, and otherwise the problem.
"""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from atoll.machinery.cel import ext
from atoll.machinery.cel.environment import Environment
from atoll.machinery.cel.equality import equal, find
from atoll.machinery.cel.errors import CompileError, EvaluationError
from atoll.machinery.cel.libraries.base import base_libraries
from atoll.machinery.cel.types import (
    ANY,
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    UINT,
    ListType,
    MapType,
    OptionalType,
    Type,
    TypeType,
)
from atoll.machinery.cel.values import SECOND, Duration, Timestamp, TypeValue, UInt, type_of
from harness.clients.go_programs import go
from harness.oracles.textproto import Message, parse

MODULE = "cel.dev/expr@v0.25.3"
_LIBRARIES = (*base_libraries(), ext.STRINGS_REVERSE, ext.MATH, ext.ENCODERS, ext.BINDINGS)
_PRIMITIVES = {"BOOL": BOOL, "INT64": INT, "UINT64": UINT, "DOUBLE": DOUBLE, "STRING": STRING, "BYTES": BYTES}
_WELL_KNOWN = {"ANY": ANY, "TIMESTAMP": TIMESTAMP, "DURATION": DURATION}


@dataclass(frozen=True)
class Case:
    """One test: its file, `section/name`, and the message."""

    file: str
    name: str
    test: Message


@cache
def testdata() -> Path:
    """Return the folder of the files. Skips on a machine without Go."""
    done = subprocess.run(
        [go(), "mod", "download", "-json", MODULE], capture_output=True, text=True, timeout=300, check=True
    )
    return Path(json.loads(done.stdout)["Dir"]) / "tests" / "simple" / "testdata"


def files() -> list[str]:
    """Return the names of the files without their extension."""
    return sorted(path.stem for path in testdata().glob("*.textproto"))


def cases(file: str) -> Iterator[Case]:
    """Yield the cases of a file; repeated names get a number."""
    seen: dict[str, int] = {}
    document = parse((testdata() / f"{file}.textproto").read_text())
    for section in document.get("section", []):
        for test in section.get("test", []):
            name = f"{_text(section, 'name')}/{_text(test, 'name')}"
            seen[name] = seen.get(name, 0) + 1
            yield Case(file, name if seen[name] == 1 else f"{name}#{seen[name]}", test)


def run(case: Case) -> str | None:
    """Return the problem; None if the case passes."""
    try:
        return _run(case.test)
    except _Unsupported as error:
        return str(error)


class _Unsupported(Exception):
    pass


def _run(test: Message) -> str | None:
    if any("function" in each for each in test.get("type_env", [])):
        raise _Unsupported("declares a function")
    variables = {_text(each, "name"): _type(each["ident"][0]["type"][0]) for each in test.get("type_env", [])}
    bindings = {_text(each, "key"): _binding(each["value"][0]) for each in test.get("bindings", [])}
    variables = {**dict.fromkeys(bindings, DYN), **variables}
    environment = Environment(variables, _LIBRARIES, homogeneous=False, container=_text(test, "container"))
    fails = "eval_error" in test or "any_eval_errors" in test
    try:
        program = environment.compile(_text(test, "expr"))
    except CompileError as error:
        # An error at compile time counts as the error of the case.
        return None if fails else f"does not compile: {error.args[0].splitlines()[0]}"
    wanted_type = _deduced(test)
    if wanted_type is not None and wanted_type != program.type:
        return f"type {program.type}, not {wanted_type}"
    if test.get("check_only") == ["true"]:
        return None
    try:
        value = program.evaluate(bindings)
    except EvaluationError as error:
        return None if fails else f"fails: {error}"
    return f"gives {value!r} instead of an error" if fails else _differs(value, test)


def _differs(value: Any, test: Message) -> str | None:
    if "unknown" in test or "any_unknowns" in test:
        raise _Unsupported("unknown values")
    wanted = True
    if "value" in test:
        wanted = _value(test["value"][0])
    elif "typed_result" in test and "result" in test["typed_result"][0]:
        wanted = _value(test["typed_result"][0]["result"][0])
    return None if _same(value, wanted) else f"gives {value!r}, not {wanted!r}"


def _same(value: Any, wanted: Any) -> bool:
    if isinstance(value, float) and isinstance(wanted, float) and math.isnan(value):
        return math.isnan(wanted)
    if isinstance(value, list) and isinstance(wanted, list):
        return len(value) == len(wanted) and all(map(_same, value, wanted))
    if isinstance(value, dict) and isinstance(wanted, dict):
        return len(value) == len(wanted) and all(_same(each, find(wanted, key)) for key, each in value.items())
    return type_of(value) == type_of(wanted) and equal(value, wanted)


def _text(message: Message, name: str) -> str:
    found = message.get(name)
    return found[0].decode() if found else ""


def _deduced(test: Message) -> Type | None:
    results = test.get("typed_result")
    return _type(results[0]["deduced_type"][0]) if results and "deduced_type" in results[0] else None


def _type(message: Message) -> Type:
    kind, (value, *_) = next(iter(message.items()))
    if kind == "primitive":
        return _PRIMITIVES[value]
    if kind == "well_known":
        return _WELL_KNOWN[value]
    if kind == "list_type":
        return ListType(_type(value["elem_type"][0]))
    if kind == "map_type":
        return MapType(_type(value["key_type"][0]), _type(value["value_type"][0]))
    if kind == "wrapper":
        of = _PRIMITIVES[value]
        return Type(of.kind, of.name, nullable=True)
    if kind == "type":
        return TypeType(_type(value)) if value else TypeType()
    if kind == "abstract_type" and _text(value, "name") in ("optional", "optional_type"):
        return OptionalType(_type(value["parameter_types"][0]))
    simple = {"dyn": DYN, "null": NULL}.get(kind)
    if simple is None:
        raise _Unsupported(f"protobuf message type in {kind}")
    return simple


def _binding(message: Message) -> Any:
    if "value" not in message:
        raise _Unsupported("unknown values")
    return _value(message["value"][0])


_SCALARS: dict[str, Any] = {
    "null_value": lambda _: None,
    "bool_value": lambda v: v == "true",
    "int64_value": int,
    "uint64_value": lambda v: UInt(int(v)),
    "double_value": lambda v: float(v.lower().replace("infinity", "inf")),
    "string_value": bytes.decode,
    "bytes_value": bytes,
    "type_value": lambda v: TypeValue(v.decode()),
}


def _value(message: Message) -> Any:
    kind, (value, *_) = next(iter(message.items()))
    scalar = _SCALARS.get(kind)
    if scalar is not None:
        return scalar(value)
    if kind == "list_value":
        return [_value(each) for each in value.get("values", [])]
    if kind == "map_value":
        entries = value.get("entries", [])
        return {_value(each["key"][0]): _value(each["value"][0]) for each in entries}
    return _object(kind, value)


def _object(kind: str, value: Any) -> Any:
    """Return the value of a message: only the two with a CEL type are supported."""
    of = value.get("@type", [""])[0] if kind == "object_value" else kind
    if of in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        nanos = int(value.get("seconds", ["0"])[0]) * SECOND + int(value.get("nanos", ["0"])[0])
        return Timestamp(nanos) if of.endswith("Timestamp") else Duration(nanos)
    raise _Unsupported(f"protobuf message {of}")
