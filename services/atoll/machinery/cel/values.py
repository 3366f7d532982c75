"""CEL values without a Python counterpart: uint, timestamp, duration, type, optional.

The standard library and the conversions of fields make them; every function reads them. JSON needs no conversion: bool,
int, float, str, None, list and dict are CEL values. Invariant: values are immutable, and no function returns an int
outside of 64 bits.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from atoll.machinery.cel.types import (
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

INT_MIN: Final = -(1 << 63)
INT_MAX: Final = (1 << 63) - 1
UINT_MAX: Final = (1 << 64) - 1
SECOND: Final = 1_000_000_000


class UInt(int):
    """A CEL uint. Python arithmetic on it returns plain ints, so functions wrap their results."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{int(self)}u"


class Opaque:
    """Base class of values of declared types; subclasses name their CEL type in `cel_type`.

    Equality is the `__eq__` of the subclass, which may raise EvaluationError. Values of different classes are unequal.
    If the left value is `strict`, comparing it with a value of another class, null excepted, is an error.
    """

    __slots__ = ()
    cel_type: ClassVar[Type]
    strict: ClassVar[bool] = False


class Duration(Opaque):
    """A span of time in whole nanoseconds, within 64 bits."""

    __slots__ = ("nanos",)
    cel_type = DURATION

    def __init__(self, nanos: int) -> None:
        self.nanos = nanos

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and other.nanos == self.nanos

    def __hash__(self) -> int:
        return hash((Duration, self.nanos))

    def __repr__(self) -> str:
        return f"Duration({self.nanos})"


class Timestamp(Opaque):
    """A moment in nanoseconds since 1970-01-01T00:00:00Z, between the years 1 and 9999.

    `offset_s` is the zone of the source text in seconds east of UTC; it affects only the text of the timestamp.
    """

    __slots__ = ("nanos", "offset_s")
    cel_type = TIMESTAMP

    def __init__(self, nanos: int, offset_s: int = 0) -> None:
        self.nanos = nanos
        self.offset_s = offset_s

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and other.nanos == self.nanos

    def __hash__(self) -> int:
        return hash((Timestamp, self.nanos))

    def __repr__(self) -> str:
        return f"Timestamp({self.nanos})"


class TypeValue(Opaque):
    """The value of a type name. Two are equal if their names are (`type([1]) == list`)."""

    __slots__ = ("name",)
    cel_type = TypeType()

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypeValue) and other.name == self.name

    def __hash__(self) -> int:
        return hash((TypeValue, self.name))

    def __repr__(self) -> str:
        return self.name


_EMPTY: Final = object()


class Optional_(Opaque):
    """`optional.of(value)`, or `optional.none()` if made without a value."""

    __slots__ = ("_value",)
    cel_type = OptionalType(DYN)

    def __init__(self, value: Any = _EMPTY) -> None:
        self._value = value

    @property
    def has_value(self) -> bool:
        """Whether a value is present."""
        return self._value is not _EMPTY

    @property
    def value(self) -> Any:
        """The value; meaningful only if `has_value`."""
        return self._value

    def __repr__(self) -> str:
        return f"optional.of({self._value!r})" if self.has_value else "optional.none()"


NONE: Final = Optional_()

_LIST, _MAP = ListType(DYN), MapType(DYN, DYN)
_BY_CLASS: Final[dict[type, Type]] = {
    bool: BOOL,
    int: INT,
    UInt: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    type(None): NULL,
    list: _LIST,
    dict: _MAP,
}


def type_of(value: Any) -> Type:
    """Return the run-time type of a value: kind and name, with dyn as parameters."""
    found = _BY_CLASS.get(type(value))
    if found is not None:
        return found
    if isinstance(value, list):
        return _LIST
    if isinstance(value, dict):
        return _MAP
    kind: Type = value.cel_type
    return kind
