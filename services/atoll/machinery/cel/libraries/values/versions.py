"""Semantic versions, parsed and ordered as Kubernetes' semver library does, with its error texts.

Called by `libraries.semver`. Numbers are unsigned 64-bit; build metadata (after `+`) is parsed but never compared.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from atoll.machinery.cel.libraries.values.quoting import quote

_UINT64_MAX = 2**64 - 1
_DIGITS = re.compile("[0-9]*")
_IDENTIFIER = re.compile("[0-9A-Za-z-]*")
_MAX_DIGITS = 20


@dataclass(frozen=True, slots=True, eq=False)
class Version:
    """A version; `prerelease` holds numbers and words."""

    major: int
    minor: int
    patch: int
    prerelease: tuple[int | str, ...] = ()

    def compare(self, other: Version) -> int:
        """Return -1, 0 or 1 in the order of precedence: a prerelease comes before its release."""
        mine, theirs = (self.major, self.minor, self.patch), (other.major, other.minor, other.patch)
        if mine != theirs:
            return 1 if mine > theirs else -1
        if not self.prerelease or not other.prerelease:
            return bool(other.prerelease) - bool(self.prerelease)
        for left, right in zip(self.prerelease, other.prerelease, strict=False):
            if left != right:
                return 1 if _rank(left) > _rank(right) else -1
        return (len(self.prerelease) > len(other.prerelease)) - (len(self.prerelease) < len(other.prerelease))


def _rank(identifier: int | str) -> tuple[bool, int, bytes]:
    """Return the sort key of an identifier: numbers come before words, words are ordered by their bytes."""
    if isinstance(identifier, int):
        return False, identifier, b""
    return True, 0, identifier.encode()


def parse(text: str) -> Version:
    """Parse a version of three numbers. Raises ValueError with Kubernetes' text."""
    if not text:
        raise ValueError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise ValueError("No Major.Minor.Patch elements found")
    major, minor = _number(parts[0], "major"), _number(parts[1], "minor")
    rest, plus, build = parts[2].partition("+")
    patch_text, dash, prerelease = rest.partition("-")
    patch = _number(patch_text, "patch")
    identifiers = tuple(_identifier(part) for part in prerelease.split(".")) if dash else ()
    if plus:
        _check_build(build.split("."))
    return Version(major, minor, patch, identifiers)


def parse_normalized(text: str) -> Version:
    """Parse a version with an optional leading `v`, leading zeros, and one to three numbers. Raises ValueError."""
    parts = [_without_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3:
        if "+" in parts[-1] or "-" in parts[-1]:
            raise ValueError("short version cannot contain PreRelease/Build meta data")
        parts += ["0"] * (3 - len(parts))
    return parse(".".join(parts))


def _without_zeros(part: str) -> str:
    if len(part.encode()) <= 1:
        return part
    stripped = part.lstrip("0")
    return stripped if stripped and "0" <= stripped[0] <= "9" else "0" + stripped


def _number(text: str, name: str) -> int:
    if not _DIGITS.fullmatch(text):
        raise ValueError(f"Invalid character(s) found in {name} number {quote(text)}")
    if len(text) > 1 and text[0] == "0":
        raise ValueError(f"{name.capitalize()} number must not contain leading zeroes {quote(text)}")
    return _unsigned(text)


def _unsigned(text: str) -> int:
    if not text:
        raise ValueError('strconv.ParseUint: parsing "": invalid syntax')
    if len(text) > _MAX_DIGITS or int(text) > _UINT64_MAX:
        raise ValueError(f"strconv.ParseUint: parsing {quote(text)}: value out of range")
    return int(text)


def _identifier(text: str) -> int | str:
    if not text:
        raise ValueError("Prerelease is empty")
    if _DIGITS.fullmatch(text):
        if len(text) > 1 and text[0] == "0":
            raise ValueError(f"Numeric PreRelease version must not contain leading zeroes {quote(text)}")
        return _unsigned(text)
    if not _IDENTIFIER.fullmatch(text):
        raise ValueError(f"Invalid character(s) found in prerelease {quote(text)}")
    return text


def _check_build(parts: Sequence[str]) -> None:
    for part in parts:
        if not part:
            raise ValueError("Build meta data is empty")
        if not _IDENTIFIER.fullmatch(part):
            raise ValueError(f"Invalid character(s) found in build meta data {quote(part)}")
