"""An environment with a variable of each type, their values and declared sizes, for tables of expressions."""

from __future__ import annotations

from typing import Any, Final

from atoll.machinery.cel import ext
from atoll.machinery.cel.environment import Environment
from atoll.machinery.cel.libraries.base import base_libraries
from atoll.machinery.cel.types import BOOL, BYTES, DOUBLE, DYN, INT, STRING, UINT, ListType, MapType
from atoll.machinery.cel.values import UInt
from harness.oracles.cel_expressions import Sizes

PROGRAMS: Final = Environment(
    {
        "b": BOOL,
        "i": INT,
        "u": UINT,
        "f": DOUBLE,
        "s": STRING,
        "y": BYTES,
        "l": ListType(INT),
        "ls": ListType(STRING),
        "m": MapType(STRING, INT),
        "mm": MapType(STRING, ListType(INT)),
        "d": DYN,
    },
    (*base_libraries(), ext.MATH, ext.ENCODERS, ext.BINDINGS),
)
VALUES: Final[dict[str, Any]] = {
    "b": True,
    "i": 1,
    "u": UInt(3),
    "f": 2.5,
    "s": "abcdefghijkl",
    "y": b"xyz",
    "l": [1, 2, 3],
    "ls": ["a", "bb"],
    "m": {"a": 1, "b": 2},
    "mm": {"k": [1, 2]},
    "d": {"x": {"y": 1}},
}
SIZES: Final = Sizes({"l": (0, 5), "ls": (0, 4), "ls.@items": (0, 12), "s": (2, 20), "m": (0, 7), "m.@keys": (0, 9)})
