"""Base class of the values of Kubernetes' own types, with their equality.

Every library here with a type of its own subclasses it.
"""

from __future__ import annotations

from typing import Self

from atoll.machinery.cel.errors import NoSuchOverload
from atoll.machinery.cel.values import Opaque


class KubernetesValue(Opaque):
    """A value that equals values of its own type only.

    Comparing it with a value of another type is an error, as in Kubernetes, except with null, to which it is unequal.
    """

    __slots__ = ()
    strict = True

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.equals(other)

    __hash__ = Opaque.__hash__

    def equals(self, other: Self) -> bool:
        """Report whether both values are equal. Raises EvaluationError if Kubernetes cannot decide."""
        raise NoSuchOverload
