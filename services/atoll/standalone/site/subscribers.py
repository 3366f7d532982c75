"""The operator's own subscribers in a site: one credential each, which reads both streams of every shard.

`atoll start --shards` and `atoll nats-config --subscribers` call it. Each shard has a file of its own in the form of a
single shard's `stream.json`, all with the same credential, as positions and keys belong to one shard. Invariant: a
subscriber publishes nothing, and no consumer name of it is another user's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from atoll.machinery.process.private_files import write_private
from atoll.machinery.stream.connection import Access
from atoll.machinery.stream.credential_file import PLAIN, Reach
from atoll.machinery.stream.permissions import inbox_prefix, operator_permissions
from atoll.machinery.stream.server.config import NatsUser, stream_file
from atoll.standalone.site.credentials import public_keys, reading_user


def subscriber(directory: Path, shards: Sequence[str], name: str, reach: Reach = PLAIN) -> NatsUser:
    """A user that reads everything, with its credential file. After `nats_users`. Raises OSError."""
    keys = public_keys(directory, shards)
    return reading_user(directory, operator_permissions(shards, name), name, keys, reach)


def write_stream_files(
    user: NatsUser, urls: Sequence[str], files: Mapping[str, Path], keys: Mapping[str, Sequence[str]], ca_file: str = ""
) -> None:
    """Write a subscriber's file for each shard, where `files` says. `urls` are the servers'. Raises OSError."""
    access = Access(list(urls), user.name, user.password, inbox_prefix(user.name), ca_file)
    for shard, path in files.items():
        write_private(path, stream_file(access, shard, keys.get(shard, ())))
