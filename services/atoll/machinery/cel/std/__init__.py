"""The standard library of the language: operators, conversions, strings, times, optionals.

What belongs here: functions that every environment has. What does not belong here: libraries that an environment may
omit (`ext`, `libraries`).
"""

from __future__ import annotations

from atoll.machinery.cel.functions import Library
from atoll.machinery.cel.std.arithmetic import FUNCTIONS as ARITHMETIC
from atoll.machinery.cel.std.comparison import FUNCTIONS as COMPARISON
from atoll.machinery.cel.std.conversion import FUNCTIONS as CONVERSION
from atoll.machinery.cel.std.indexing import CONSTANTS
from atoll.machinery.cel.std.indexing import FUNCTIONS as STRUCTURE
from atoll.machinery.cel.std.optionals import CONSTANTS as OPTIONAL_CONSTANTS
from atoll.machinery.cel.std.optionals import FUNCTIONS as OPTIONALS
from atoll.machinery.cel.std.optionals import MACROS as OPTIONAL_MACROS
from atoll.machinery.cel.std.strings import FUNCTIONS as STRINGS
from atoll.machinery.cel.std.times import FUNCTIONS as TIMES
from atoll.machinery.cel.syntax.macros import STANDARD as MACROS

STANDARD = Library(
    "stdlib",
    functions=(*ARITHMETIC, *COMPARISON, *CONVERSION, *STRINGS, *STRUCTURE, *TIMES),
    constants=CONSTANTS,
    macros=MACROS,
)
OPTIONAL = Library("cel.lib.optional", functions=OPTIONALS, constants=OPTIONAL_CONSTANTS, macros=OPTIONAL_MACROS)

__all__ = ["OPTIONAL", "STANDARD"]
