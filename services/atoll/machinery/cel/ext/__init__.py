"""The extension libraries of cel-go: strings, lists, sets, math, encoders, two-variable folds, bindings.

Each is a `Library` that an environment may take or leave; Kubernetes takes strings, lists, sets and the
two-variable folds. What Kubernetes declares itself is in `libraries`.
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
