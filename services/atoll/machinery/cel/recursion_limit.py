"""Room on the stack for deep expressions, and for nothing else.

The parser lets 250 levels through, and each takes a few frames in the checker, the compiler, the estimate and the
evaluation. Invariant: outside of these the interpreter's own limit holds, which is what cuts nested bodies short.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from atoll.machinery.cel.syntax.ast import Expr, children

FRAMES = 6000
#: So many levels fit the interpreter's own limit, beside the stack of a server.
SHALLOW = 60


def is_shallow(tree: Expr) -> bool:
    """Whether an expression has few levels, as nearly all have."""
    level, depth = [tree], 0
    while level and depth <= SHALLOW:
        level = [below for expr in level for below in children(expr)]
        depth += 1
    return depth <= SHALLOW


class _Raised:
    """How many blocks are running, and what the limit was before the first. Evaluations in slices overlap."""

    lock = threading.Lock()
    count = 0
    before = 0


@contextmanager
def deep_stack() -> Iterator[None]:
    """Allow `FRAMES` frames while the block runs. Blocks of several threads may overlap."""
    with _Raised.lock:
        if _Raised.count == 0:
            _Raised.before = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_Raised.before, FRAMES))
        _Raised.count += 1
    try:
        yield
    finally:
        with _Raised.lock:
            _Raised.count -= 1
            if _Raised.count == 0:
                sys.setrecursionlimit(_Raised.before)
