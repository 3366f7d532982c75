"""`semver(text[, normalize])`, `isSemver(text[, normalize])`, and comparison of versions.

Part of `base`. `normalize` accepts a leading `v`, missing numbers and leading zeros.
"""

from __future__ import annotations

from typing import Final

from atoll.machinery.cel.errors import EvaluationError
from atoll.machinery.cel.functions import Function, Library, Overload
from atoll.machinery.cel.libraries.kubernetes_value import KubernetesValue
from atoll.machinery.cel.libraries.values import versions
from atoll.machinery.cel.types import BOOL, INT, STRING, ObjectType

TYPE: Final = ObjectType("kubernetes.Semver", {})


class Semver(KubernetesValue):
    """A version as a CEL value."""

    __slots__ = ("version",)
    cel_type = TYPE

    def __init__(self, version: versions.Version) -> None:
        self.version = version

    def equals(self, other: Semver) -> bool:
        return self.version.compare(other.version) == 0

    def __hash__(self) -> int:
        version = self.version
        return hash((version.major, version.minor, version.patch, version.prerelease))


def parse(text: str, normalize: bool = False) -> Semver:
    """Return the version of a text. Raises EvaluationError."""
    try:
        return Semver(_parse(text, normalize))
    except ValueError as error:
        raise EvaluationError(str(error)) from None


def _parse(text: str, normalize: bool) -> versions.Version:
    return versions.parse_normalized(text) if normalize else versions.parse(text)


def _is_semver(text: str, normalize: bool = False) -> bool:
    try:
        _parse(text, normalize)
    except ValueError:
        return False
    return True


def _signed(number: int) -> int:
    """Convert an unsigned 64-bit number of a version to CEL's int: the largest become negative, as in Go."""
    return number - 2**64 if number >= 2**63 else number


def _major(value: Semver) -> int:
    return _signed(value.version.major)


def _minor(value: Semver) -> int:
    return _signed(value.version.minor)


def _patch(value: Semver) -> int:
    return _signed(value.version.patch)


def _compare(value: Semver, other: Semver) -> int:
    return value.version.compare(other.version)


def _is_greater(value: Semver, other: Semver) -> bool:
    return value.version.compare(other.version) > 0


def _is_less(value: Semver, other: Semver) -> bool:
    return value.version.compare(other.version) < 0


LIBRARY: Final = Library(
    "kubernetes.Semver",
    (
        Function(
            "semver",
            (
                Overload("string_to_semver", (STRING,), TYPE, parse),
                Overload("string_bool_to_semver", (STRING, BOOL), TYPE, parse),
            ),
        ),
        Function(
            "isSemver",
            (
                Overload("is_semver_string", (STRING,), BOOL, _is_semver),
                Overload("is_semver_string_bool", (STRING, BOOL), BOOL, _is_semver),
            ),
        ),
        Function("major", (Overload("semver_major", (TYPE,), INT, _major, member=True),)),
        Function("minor", (Overload("semver_minor", (TYPE,), INT, _minor, member=True),)),
        Function("patch", (Overload("semver_patch", (TYPE,), INT, _patch, member=True),)),
        Function("compareTo", (Overload("semver_compare_to", (TYPE, TYPE), INT, _compare, member=True),)),
        Function("isGreaterThan", (Overload("semver_is_greater_than", (TYPE, TYPE), BOOL, _is_greater, member=True),)),
        Function("isLessThan", (Overload("semver_is_less_than", (TYPE, TYPE), BOOL, _is_less, member=True),)),
    ),
)
