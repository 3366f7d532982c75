"""The file with a NATS credential that a process is given by flag.

The tool that sets up a site writes one for each process; `standalone` and the front proxy read theirs. JSON of
`user`, `password`, `inbox_prefix` (what the server lets this user subscribe to), `api_prefix` (where JetStream is),
`ca_file`, relative to the file, `servers`, the URLs of all servers of a cluster, and `event_keys`, the public keys of
each shard. A shard has two more: `reader`, the user by which it reads other shards, and `signing_keys`, which sign its
events. Invariant: such a file is 0600 at all times.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from atoll.machinery.process.private_files import write_private
from atoll.machinery.stream.connection import Access
from atoll.machinery.stream.event_keys import SigningKey


class InvalidCredentialFile(Exception):
    """A file that holds no NATS credential. The text names the file and quotes nothing of it."""


class NatsCredential(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One user. Without `ca_file`, a TLS server is verified by the system's authorities."""

    user: str
    password: str
    inbox_prefix: str = "_INBOX"
    ca_file: str = ""
    api_prefix: str = "$JS.API"
    reader: NatsCredential | None = None
    signing_keys: tuple[SigningKey, ...] = ()
    event_keys: dict[str, tuple[str, ...]] | None = None
    servers: tuple[str, ...] = ()


class Reach(msgspec.Struct, frozen=True):
    """What every credential file of a server or a cluster says: where the authority of its certificates is, relative to
    the file, and the URLs of a cluster's servers."""

    ca_file: str = ""
    servers: tuple[str, ...] = ()


#: A server without TLS that is no part of a cluster.
PLAIN = Reach()


def write_credential(path: Path, credential: NatsCredential) -> None:
    """Write a credential file. Raises OSError."""
    write_private(path, msgspec.json.format(msgspec.json.encode(credential), indent=2) + b"\n")


def read_access(url: str, file: str) -> Access:
    """Return the access to the server at `url` as the user of a file; without a file, as the URL says. `url` may be
    several, comma separated. If the file names it, all servers of the file are meant, which are one cluster.

    Raises CredentialFileRefused, OSError.
    """
    servers = [each.strip() for each in url.split(",")]
    if not file:
        return Access(servers)
    path = Path(file)
    try:
        found = msgspec.json.decode(path.read_bytes(), type=NatsCredential)
    except msgspec.DecodeError as error:
        raise InvalidCredentialFile(f"{file} holds no NATS credential: user and password as JSON") from error
    if not set(servers).isdisjoint(found.servers):
        servers = list(dict.fromkeys((*servers, *found.servers)))
    return _access(servers, path.parent, found)


def _access(servers: list[str], directory: Path, found: NatsCredential) -> Access:
    authority = str(directory / found.ca_file) if found.ca_file else ""
    reader = _access(servers, directory, found.reader) if found.reader is not None else None
    return Access(
        servers,
        found.user,
        found.password,
        found.inbox_prefix,
        authority,
        found.api_prefix,
        reader,
        found.signing_keys,
        found.event_keys,
    )
