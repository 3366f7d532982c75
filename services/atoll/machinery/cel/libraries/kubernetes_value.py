"""The base of the values of Kubernetes' own types: how they answer to `==`.

Subclassed by every library here that has a type.
"""

from __future__ import annotations

from typing import Self

from atoll.machinery.cel.errors import NoSuchOverload
from atoll.machinery.cel.values import Opaque


class KubernetesValue(Opaque):
    """A value that equals others of its type only. Comparing it with a value of another type is an error, as in
    Kubernetes, except with null, to which nothing is equal."""

    __slots__ = ()
    strict = True

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.equals(other)

    __hash__ = Opaque.__hash__

    def equals(self, other: Self) -> bool:
        """Whether both stand for the same. Raises EvaluationError where Kubernetes cannot tell."""
        raise NoSuchOverload
