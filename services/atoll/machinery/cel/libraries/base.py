"""Which libraries an expression may use, by the version of Kubernetes it must be understood by.

Callers that hold rules ask here once and keep the environment they make of it. An expression that is being written
gets the libraries that every server of the compatibility version has, so that it survives going back a version; one
that is stored already gets all there are, for it was let in once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from atoll.machinery.cel import ext
from atoll.machinery.cel.functions import Library
from atoll.machinery.cel.libraries import authorizer, cidr, costs, format, ip, lists, quantity, regex, semver, url

#: A server of 1.37 lets in what one of 1.36 understands.
COMPATIBILITY: Final = (1, 36)
#: Evaluations stop at these run-time costs: of one expression, and of all for one object.
CALL_LIMIT: Final = 1_000_000
OBJECT_LIMIT: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class _VersionedLibrary:
    """A library and the minor version of Kubernetes 1 that brought it."""

    minor: int
    library: Library


_LIBRARIES: Final = (
    _VersionedLibrary(0, url.LIBRARY),
    _VersionedLibrary(0, regex.LIBRARY),
    _VersionedLibrary(0, lists.LIBRARY),
    _VersionedLibrary(27, authorizer.LIBRARY),
    _VersionedLibrary(28, quantity.LIBRARY),
    _VersionedLibrary(29, ext.STRINGS),
    _VersionedLibrary(29, ext.SETS),
    _VersionedLibrary(30, ip.LIBRARY),
    _VersionedLibrary(30, cidr.LIBRARY),
    _VersionedLibrary(31, format.LIBRARY),
    _VersionedLibrary(31, authorizer.SELECTORS),
    _VersionedLibrary(32, ext.COMPREHENSIONS_V2),
    _VersionedLibrary(33, semver.LIBRARY),
    _VersionedLibrary(34, ext.LISTS),
    _VersionedLibrary(37, lists.INCLUDES),
    _VersionedLibrary(0, costs.LIBRARY),
)


def base_libraries(version: tuple[int, int] | None = COMPATIBILITY) -> tuple[Library, ...]:
    """All libraries of a version of Kubernetes; of every version when None is given, for expressions that are stored.

    Versions before 1.29 are not told apart from it in the functions of strings. The functions of the authorizer are
    among them everywhere, also for rules of definitions, which have no variable to call them on.
    """
    return tuple(entry.library for entry in _LIBRARIES if version is None or version >= (1, entry.minor))


#: What rules of CustomResourceDefinitions use.
rule_libraries = base_libraries
