"""The public call: an iterator over the changes of one shard.

Third parties call it; `reader` does the work. Invariant: a mistake in the arguments raises at the call, not at the
first event.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path

import structlog

from atoll.events.event import Event, decode_position
from atoll.events.reader import ChangeReader, Selection
from atoll.events.stream_file import read_stream_file
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.stream import subjects
from atoll.machinery.stream.consumer.origin_check import OriginCheck
from atoll.machinery.stream.event_keys import by_id

log = structlog.get_logger()

#: Positions to begin at: the oldest change that the stream still holds, or a RESYNC and then what follows it.
OLDEST, LATEST = "", "latest"
_REREAD_S = 60.0


def changes(
    stream_file: str | Path,
    *,
    position: str = OLDEST,
    cluster: str = "",
    identity: str = "",
    type: ResourceType | None = None,
    consumer: str = "",
) -> AsyncGenerator[Event, None]:
    """Iterate over the changes of the shard that `stream_file` describes, in revision order, without end.

    `position` is that of the last event handled by an earlier run. `cluster`, `identity` and `type` select changes of
    one logical cluster, one export's identity and one resource. Programs that run at the same time need different
    `consumer` names of those in the file; a second program of the same name takes over from the first.

    Each event is verified with the public keys in the file; one that the shard did not sign is dropped with an error in
    the log. With a file without keys, as earlier versions wrote it, none is verified.

    A server that cannot be reached is tried again, with back-off and a warning in the log. Raises OSError, ValueError
    for the arguments; iterating raises nothing. The connection is closed by `aclose`, or at the end of the event loop.
    """
    file = read_stream_file(stream_file)
    filters = subjects.filters(subjects.CHANGES, file.shard, identity=identity, type=type, cluster=cluster)
    selection = Selection(file.streams[subjects.CHANGES], filters, file.consumer(consumer))
    begin = decode_position(position) if position not in (OLDEST, LATEST) else None

    def keys() -> Mapping[str, str]:
        return by_id(read_stream_file(stream_file).event_keys or ())

    check = OriginCheck(selection.stream, _Kept(keys) if file.event_keys is not None else None)
    return ChangeReader(file.access, selection, begin, check, from_oldest=position == OLDEST).events()


class _Kept:
    """The keys of a stream file, read again at most once a minute: a shard announces a key there before it signs."""

    def __init__(self, read: Callable[[], Mapping[str, str]]) -> None:
        self._read = read
        self._keys, self._at_s = read(), time.monotonic()

    def __call__(self) -> Mapping[str, str]:
        if time.monotonic() - self._at_s > _REREAD_S:
            self._at_s = time.monotonic()
            try:
                self._keys = self._read()
            except (OSError, ValueError) as error:
                log.warning("stream file unreadable", error=str(error))
        return self._keys
