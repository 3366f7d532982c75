"""The libraries that an expression may use, by Kubernetes version.

Callers that hold rules ask once and keep the environment that they make. A new expression gets the libraries of the
compatibility version, so that it stays valid after a downgrade by one version; a stored one gets all libraries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from atoll.machinery.cel import ext
from atoll.machinery.cel.functions import Library
from atoll.machinery.cel.libraries import authorizer, cidr, costs, format, ip, lists, quantity, regex, semver, url

#: A server of 1.37 accepts new expressions that a server of 1.36 supports.
COMPATIBILITY: Final = (1, 36)
#: Limits of the run-time cost: of one expression, and of all expressions for one object.
CALL_LIMIT: Final = 1_000_000
OBJECT_LIMIT: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class _VersionedLibrary:
    """A library and the minor version of Kubernetes 1 that introduced it."""

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
    """Return the libraries of a Kubernetes version; None, for stored expressions, means of all versions.

    The string functions of versions before 1.29 are not included. The functions of the authorizer are included for
    rules of definitions as well, which have no variable to call them on.
    """
    return tuple(entry.library for entry in _LIBRARIES if version is None or version >= (1, entry.minor))


#: The libraries of rules of CustomResourceDefinitions.
rule_libraries = base_libraries
