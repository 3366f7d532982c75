"""A list as YAML, streamed: the parts of a JSON list are encoded one after the other.

`serving.list_replies` passes the parts that `rest.list` yields. Invariant: memory is that of one part and its items.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import msgspec

from atoll.machinery.apiserver.call.in_slices import in_slices
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.schema.yaml_encoder import encode_yaml, encode_yaml_item

_each = msgspec.json.Decoder(list[msgspec.Raw])


async def encoded(head: bytes, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield a list as YAML, the items before its metadata.

    `head` is the JSON before the items, up to their bracket. The first part begins with it, the others with a comma;
    the last one is the JSON from the bracket after the items. Raises Timeout.
    """
    fields: Object = decode(head + b"]}")
    name, _ = fields.popitem()
    yield encode_yaml(fields) + name.encode() + b":"
    is_empty, skipped = True, len(head)
    async for part in parts:
        if part.startswith(b"]"):
            yield (b" []\n" if is_empty else b"") + encode_yaml(decode(b"{" + part[2:]))
        elif items := part[skipped:].removeprefix(b","):
            yield (b"\n" if is_empty else b"") + await in_slices(_items(items))
            is_empty = False
        skipped = 0


def _items(items: bytes) -> Callable[[], bytes]:
    return lambda: b"".join(encode_yaml_item(decode(bytes(item))) for item in _each.decode(b"[" + items + b"]"))
