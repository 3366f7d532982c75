"""The cache of compiled policies, by content: all workspaces with the same expressions share a program.

`dispatch` asks for the program of each policy that matches. Compilation pauses often: where the write is only tried on
the loop it is stopped there, and repeated in slices beside it. Bounded by the memory that programs take; the least
recently used is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from atoll.machinery.apiserver.admission.expressions.expression import Pause
from atoll.machinery.apiserver.admission.policies.policy import Policy
from atoll.machinery.apiserver.admission.policies.program import PolicyProgram
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.objects import Object
from atoll.machinery.process.time_slicing import checkpoint

P = TypeVar("P", bound=PolicyProgram)

#: Bytes of compiled policies of one kind.
MAX_BYTES = 16 << 20


class Programs(Generic[P]):
    """Compiled policies of one kind. Not thread-safe; each event loop has its own."""

    def __init__(self, compile_spec: Callable[[Object, Pause], P], max_bytes: int = MAX_BYTES) -> None:
        self._compile = compile_spec
        self._cached: LruCache[bytes, P] = LruCache(max_bytes, lambda program: program.size_bytes)

    def of(self, policy: Policy) -> P:
        """Return the program of a policy. Raises Stopped where compiling it takes too long for the loop."""
        program = self._cached.get(policy.content)
        if program is None:
            program = self._compile(policy.spec, checkpoint)
            self._cached.put(policy.content, program)
        return program
