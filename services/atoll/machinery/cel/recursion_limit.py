"""A raised recursion limit for deep expressions only.

The parser accepts 250 levels, each of which takes a few Python frames in the checker, the compiler, the estimate and
the evaluation. Invariant: outside of the blocks of `deep_stack` the interpreter's own limit holds, which other code
relies on to reject deeply nested bodies.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from atoll.machinery.cel.syntax.ast import Expr, children

FRAMES = 6000
#: This many levels fit the interpreter's own limit on top of the stack of a server.
SHALLOW = 60


def is_shallow(tree: Expr) -> bool:
    """Report whether an expression has few levels, as nearly all have."""
    level, depth = [tree], 0
    while level and depth <= SHALLOW:
        level = [below for expr in level for below in children(expr)]
        depth += 1
    return depth <= SHALLOW


class _LimitState:
    """The number of running blocks, and the limit before the first. Evaluations in slices overlap."""

    lock = threading.Lock()
    count = 0
    before = 0


@contextmanager
def deep_stack() -> Iterator[None]:
    """Allow `FRAMES` frames while the block runs. Blocks of several threads may overlap."""
    with _LimitState.lock:
        if _LimitState.count == 0:
            _LimitState.before = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_LimitState.before, FRAMES))
        _LimitState.count += 1
    try:
        yield
    finally:
        with _LimitState.lock:
            _LimitState.count -= 1
            if _LimitState.count == 0:
                sys.setrecursionlimit(_LimitState.before)
