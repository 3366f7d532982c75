"""`stream.json`: the address, the credential and the names that `atoll start` and `atoll nats-config` write for
subscribers.

`changes` reads it. Invariant: an error names the file and quotes nothing of it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from atoll.machinery.stream.connection import Access


class _Connect(msgspec.Struct, frozen=True):
    servers: list[str]
    user: str = ""
    password: str = ""
    inbox_prefix: str = "_INBOX"


class StreamFile(msgspec.Struct, frozen=True):
    """The file's members. `consumers` are the consumer names that the credential may use; the first is the default."""

    connect: _Connect
    shard: str
    streams: dict[str, str]
    consumers: list[str]
    ca_file: str = ""
    api_prefix: str = "$JS.API"
    event_keys: list[str] | None = None

    @property
    def access(self) -> Access:
        """How to connect."""
        connect = self.connect
        return Access(
            connect.servers, connect.user, connect.password, connect.inbox_prefix, self.ca_file, self.api_prefix
        )

    def consumer(self, name: str) -> str:
        """The consumer of that name; the first one for "". Raises ValueError if the credential may not use it."""
        if name and name not in self.consumers:
            raise ValueError(f"consumer {name!r} is none of {', '.join(self.consumers)}")
        return name or self.consumers[0]


def read_stream_file(path: str | Path) -> StreamFile:
    """Read a stream file; `ca_file` is relative to it. Raises OSError, ValueError."""
    try:
        found = msgspec.json.decode(Path(path).read_bytes(), type=StreamFile)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path} is not a stream.json of atoll start") from error
    authority = str(Path(path).parent / found.ca_file) if found.ca_file else ""
    return msgspec.structs.replace(found, ca_file=authority)
