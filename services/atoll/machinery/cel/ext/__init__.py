"""The extension libraries of cel-go: strings, lists, sets, math, encoders, two-variable comprehensions, bindings.

What belongs here: libraries that an environment may include or omit; Kubernetes includes strings, lists, sets and the
two-variable comprehensions. What does not belong here: libraries that Kubernetes declares itself (`libraries`).
"""

from __future__ import annotations

from atoll.machinery.cel.ext.bindings import BINDINGS
from atoll.machinery.cel.ext.comprehensions_v2 import COMPREHENSIONS_V2
from atoll.machinery.cel.ext.encoders import ENCODERS
from atoll.machinery.cel.ext.lists import LISTS
from atoll.machinery.cel.ext.math import MATH
from atoll.machinery.cel.ext.sets import SETS
from atoll.machinery.cel.ext.strings import STRINGS, STRINGS_REVERSE

__all__ = ["BINDINGS", "COMPREHENSIONS_V2", "ENCODERS", "LISTS", "MATH", "SETS", "STRINGS", "STRINGS_REVERSE"]
