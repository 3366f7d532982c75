"""The public call: an iterator over the changes of one shard.

Third parties call it; `reader` does the work. Invariant: a mistake in the arguments raises at the call, not at the
first event.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

from atoll.events.event import Event, decode_position
from atoll.events.reader import ChangeReader, Selection
from atoll.events.stream_file import read_stream_file
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.stream import subjects

#: Positions to begin at: the oldest change that the stream still holds, or a RESYNC and then what follows it.
OLDEST, LATEST = "", "latest"


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

    A server that cannot be reached is tried again, with back-off and a warning in the log. Raises OSError, ValueError
    for the arguments; iterating raises nothing. The connection is closed by `aclose`, or at the end of the event loop.
    """
    file = read_stream_file(stream_file)
    filters = subjects.filters(subjects.CHANGES, file.shard, identity=identity, type=type, cluster=cluster)
    selection = Selection(file.streams[subjects.CHANGES], filters, file.consumer(consumer))
    begin = decode_position(position) if position not in (OLDEST, LATEST) else None
    return ChangeReader(file.access, selection, begin, from_oldest=position == OLDEST).events()
