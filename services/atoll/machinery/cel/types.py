"""CEL types, as the checker compares them and as messages print them.

Callers declare variables, functions and objects with them; the checker unifies them, and the compiler reads from them
how a JSON field converts to a CEL value. Invariant: a type is immutable and compares by kind, name and parameters; two
object types of the same name are the same type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Final


class Kind(IntEnum):
    """The kinds of types. The numbers carry no meaning."""

    BOOL = 1
    INT = 2
    UINT = 3
    DOUBLE = 4
    STRING = 5
    BYTES = 6
    NULL = 7
    DYN = 8
    ANY = 9
    TIMESTAMP = 10
    DURATION = 11
    LIST = 12
    MAP = 13
    OBJECT = 14
    OPAQUE = 15
    TYPE = 16
    PARAMETER = 17
    ERROR = 18


class Type:
    """A CEL type. `nullable` marks protobuf wrapper types, which also accept null; Kubernetes declares none."""

    __slots__ = ("_hash", "kind", "name", "nullable", "parameters")

    def __init__(self, kind: Kind, name: str, parameters: tuple[Type, ...] = (), *, nullable: bool = False) -> None:
        self.kind = kind
        self.name = name
        self.parameters = parameters
        self.nullable = nullable
        self._hash = hash((kind, name, parameters, nullable))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Type)
            and self._hash == other._hash
            and self.kind == other.kind
            and self.name == other.name
            and self.nullable == other.nullable
            and self.parameters == other.parameters
        )

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        name = f"wrapper({self.name})" if self.nullable else self.name
        if not self.parameters:
            return name
        return f"{name}({', '.join(map(str, self.parameters))})"

    def __repr__(self) -> str:
        return f"<{self}>"


BOOL = Type(Kind.BOOL, "bool")
INT = Type(Kind.INT, "int")
UINT = Type(Kind.UINT, "uint")
DOUBLE = Type(Kind.DOUBLE, "double")
STRING = Type(Kind.STRING, "string")
BYTES = Type(Kind.BYTES, "bytes")
NULL = Type(Kind.NULL, "null")
DYN = Type(Kind.DYN, "dyn")
ANY = Type(Kind.ANY, "any")
TIMESTAMP = Type(Kind.TIMESTAMP, "timestamp")
DURATION = Type(Kind.DURATION, "duration")
#: The type of an expression with an issue; assignable to every type, so that one mistake causes one issue.
ERROR = Type(Kind.ERROR, "!error!")


def ListType(item: Type) -> Type:
    """Return `list(item)`."""
    return Type(Kind.LIST, "list", (item,))


def MapType(key: Type, value: Type) -> Type:
    """Return `map(key, value)`."""
    return Type(Kind.MAP, "map", (key, value))


def TypeType(of: Type | None = None) -> Type:
    """Return `type(of)`, the type of a type name."""
    return Type(Kind.TYPE, "type", () if of is None else (of,))


def TypeParameter(name: str) -> Type:
    """Return a type variable of an overload, for example `T`."""
    return Type(Kind.PARAMETER, name)


def OpaqueType(name: str, parameters: tuple[Type, ...] = ()) -> Type:
    """Return a type of a library whose values are accessible through its functions only (`net.IP`)."""
    return Type(Kind.OPAQUE, name, parameters)


def OptionalType(item: Type) -> Type:
    """Return `optional_type(item)`."""
    return Type(Kind.OPAQUE, "optional_type", (item,))


class Field:
    """A field of an object.

    `name` is the key in JSON where it differs from the CEL name (escaped names). `convert` maps a JSON value other than
    null to the CEL value (the double of `1` in a number, the Timestamp of a date-time); None if the JSON value is the
    CEL value. The conversion of a list or map converts its items as well; fields of objects inside them are converted
    when they are selected.
    """

    __slots__ = ("convert", "name", "type")

    def __init__(self, type: Type, convert: Callable[[Any], Any] | None = None, name: str | None = None) -> None:
        self.type = type
        self.convert = convert
        self.name = name

    def __repr__(self) -> str:
        return f"Field({self.type})"


class ObjectType(Type):
    """A declared object: a dict with declared fields.

    The checker reports the selection of an undeclared field; a declared field that is absent at run time is the error
    `no such key: <field>`.
    """

    __slots__ = ("fields",)

    def __init__(self, name: str, fields: Mapping[str, Field]) -> None:
        super().__init__(Kind.OBJECT, name)
        self.fields = fields


def is_optional(of: Type) -> bool:
    """Report whether the type is `optional_type(T)`."""
    return of.kind is Kind.OPAQUE and of.name == "optional_type"


def is_dyn(of: Type) -> bool:
    """Report whether the checker defers the type to run time."""
    return of.kind is Kind.DYN or of.kind is Kind.ANY


#: The run-time names of the kinds whose run-time name differs from their own.
_RUNTIME_NAMES: Final = {
    Kind.NULL: "null_type",
    Kind.TIMESTAMP: "google.protobuf.Timestamp",
    Kind.DURATION: "google.protobuf.Duration",
    Kind.ANY: "google.protobuf.Any",
}


def runtime_name(of: Type) -> str:
    """Return the name that `type(x)` prints for values of a type."""
    return _RUNTIME_NAMES.get(of.kind, of.name)
