"""The rows of one shard, served under `/shards/<name>/`.

`server` sets the filter for requests that name a shard. An annotation of each row names its shard.
"""

from __future__ import annotations

import msgspec

from atoll.machinery.apiserver.filtered_rows import MappedRows, Rows
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.partial import Partial
from atoll.machinery.meta.wellknown import ORIGIN_SHARD


class _Annotations(msgspec.Struct):
    shard: str = msgspec.field(default="", name=ORIGIN_SHARD)


class _Metadata(msgspec.Struct):
    annotations: _Annotations


_decoder = msgspec.json.Decoder(Partial[_Metadata])


def shard_filter(store: Rows, shard: str) -> MappedRows:
    """Return the rows of one shard."""

    def show(type: ResourceType, value: bytes) -> bytes | None:
        return value if _decoder.decode(value).metadata.annotations.shard == shard else None

    return MappedRows(store, show)
