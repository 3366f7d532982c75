"""The converted forms of the objects of one write.

The writing service makes one for each write of a kind that a webhook or rules convert, and plans with its `kind`.
Planning is synchronous: it raises Unconverted for a missing form; the form is fetched and the write is planned again.
Invariant: writes share nothing here, so that no eviction can starve one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

from msgspec.structs import replace

from atoll.machinery.kinds import conversion as kinds
from atoll.machinery.kinds.conversion import Unconverted
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.objects import Object, decode, encode_json
from atoll.machinery.meta.status import ApiError

#: Fetches of one write: its base, and one for each version in which a manager owns fields.
MAX_FETCHES = 64


class Converter(Protocol):
    """Converts objects between the versions of their kind."""

    async def convert(self, kind: Kind, values: Sequence[bytes], api_version: str) -> list[bytes]:
        """Return objects in a version, in order. Raises ApiError (500)."""


class ConvertedObject:
    """Converted objects of one write, and the kind whose functions look them up."""

    def __init__(self, kind: Kind, converter: Converter) -> None:
        conversion = kind.conversion or kind.review_conversion
        assert conversion is not None
        self._kind, self._converter = replace(kind, conversion=conversion), converter
        self._found: dict[tuple[bytes, str], bytes] = {}
        self.kind = replace(kind, convert=self._look_up)
        if kind.conversion is not None:
            own = kind.api_version
            from_stored = kinds.from_stored(own, conversion.finish[own], self._look_up)
            self.kind = replace(self.kind, from_stored=from_stored)

    @classmethod
    def of(cls, kind: Kind, converter: Converter) -> ConvertedObject | None:
        """Return the object of a write of a kind; None if nothing has to convert it."""
        return None if kind.conversion is None and kind.review_conversion is None else cls(kind, converter)

    async def fetch(self, missing: Unconverted) -> None:
        """Convert one object. Raises the ApiError of a failed conversion."""
        if len(self._found) >= MAX_FETCHES:
            raise ApiError(
                f"conversion webhook for {self._kind.api_version}, Kind={self._kind.kind} failed: "
                "one write needs too many conversions",
                code=500,
                reason="",
            )
        (value,) = await self._converter.convert(self._kind, [missing.value], missing.api_version)
        self._found[_key(missing.value, missing.api_version)] = value

    def _look_up(self, obj: Object, api_version: str) -> Object:
        if not obj["metadata"].get("name"):
            # The empty object that a new one is compared with is the same in all versions.
            return {**obj, "apiVersion": api_version}
        value = encode_json(obj)
        found = self._found.get(_key(value, api_version))
        if found is None:
            raise _NotFetched(self, value, api_version)
        return decode(found)


class _NotFetched(Unconverted):
    """A form that the write lacks so far."""

    def __init__(self, owner: ConvertedObject, value: bytes, api_version: str) -> None:
        super().__init__(value, api_version)
        self._owner = owner

    async def fetch(self) -> None:
        await self._owner.fetch(self)


def _key(value: bytes, api_version: str) -> tuple[bytes, str]:
    return hashlib.blake2b(value, digest_size=16).digest(), api_version
