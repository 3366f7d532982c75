"""What one write has had converted so far.

`core` makes one for each write of a kind that a webhook converts, and plans with its `kind`: planning is synchronous
and says by Unconverted what it lacks, which is then fetched, and the write planned anew. Nothing is shared between
writes, so that no eviction can starve one.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from msgspec.structs import replace

from atoll.machinery.kinds import conversion as kinds
from atoll.machinery.kinds.conversion import Unconverted
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.objects import Object, decode, encode_json
from atoll.machinery.meta.status import ApiError

if TYPE_CHECKING:
    from atoll.machinery.apiserver.conversion.conversions import Conversions

#: Fetches of one write: its base, and what field ownership compares for each version somebody owns fields in.
MAX_FETCHES = 64


class ConvertedObject:
    """Converted objects of one write, and the kind that looks them up."""

    def __init__(self, kind: Kind, conversions: Conversions) -> None:
        assert kind.conversion is not None
        self._kind, self._conversions = kind, conversions
        self._found: dict[tuple[bytes, str], bytes] = {}
        own = kind.api_version
        from_stored = kinds.from_stored(own, kind.conversion.finish[own], self._look_up)
        self.kind = replace(kind, from_stored=from_stored, convert=self._look_up)

    async def fetch(self, missing: Unconverted) -> None:
        """Have one object converted. Raises the ApiError of a failed conversion."""
        if len(self._found) >= MAX_FETCHES:
            raise ApiError(
                f"conversion webhook for {self._kind.api_version}, Kind={self._kind.kind} failed: "
                "one write needs too many conversions",
                code=500,
                reason="",
            )
        (value,) = await self._conversions.convert(self._kind, [missing.value], missing.api_version)
        self._found[_key(missing.value, missing.api_version)] = value

    def _look_up(self, obj: Object, api_version: str) -> Object:
        if not obj["metadata"].get("name"):
            # The nothing that a new object is compared with looks alike in all versions.
            return {**obj, "apiVersion": api_version}
        value = encode_json(obj)
        found = self._found.get(_key(value, api_version))
        if found is None:
            raise Unconverted(value, api_version)
        return decode(found)


def _key(value: bytes, api_version: str) -> tuple[bytes, str]:
    return hashlib.blake2b(value, digest_size=16).digest(), api_version
