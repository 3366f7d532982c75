"""The file with a NATS credential that a process is given by flag.

The tool that sets up a site writes one for each process; `standalone` and the front proxy read theirs. JSON of
`user`, `password`, `inbox_prefix` (what the server lets this user subscribe to), `api_prefix` (where JetStream is),
`ca_file`, relative to the file, `servers`, the URLs of all servers of a cluster, and `event_keys`, the public keys of
each shard. A shard has two more: `reader`, the user by which it reads other shards, and `signing_keys`, which sign its
events. User and password are read again for each connection, so that they can be replaced in a running process.
Invariant: such a file is 0600 at all times.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import structlog

from atoll.machinery.process.private_files import write_private
from atoll.machinery.stream.connection import Access
from atoll.machinery.stream.event_keys import SigningKey

log = structlog.get_logger()


class InvalidCredentialFile(Exception):
    """A file that holds no NATS credential. The text names the file and quotes nothing of it."""


class NatsCredential(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One user. Without `ca_file`, a TLS server is verified by the system's authorities.

    A field that says nothing is left out, so that an earlier version, which does not know it, can read the file.
    """

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
    found = _read(file)
    if not set(servers).isdisjoint(found.servers):
        servers = list(dict.fromkeys((*servers, *found.servers)))
    return _access(servers, CredentialFile(file), found)


class CredentialFile(msgspec.Struct, frozen=True):
    """A credential file as the source of an access; `reader`: of the user by which a shard reads others."""

    file: str
    reader: bool = False

    def renewed(self, access: Access) -> Access:
        """The access as the user that the file has now; as before while it cannot be read."""
        try:
            found: NatsCredential | None = _read(self.file)
        except (InvalidCredentialFile, OSError) as error:
            log.error("nats credential not reloaded", reason=str(error))
            return access
        if found is not None and self.reader:
            found = found.reader
        if found is None:
            return access
        return msgspec.structs.replace(
            access, user=found.user, password=found.password, inbox_prefix=found.inbox_prefix
        )


def _read(file: str) -> NatsCredential:
    try:
        return msgspec.json.decode(Path(file).read_bytes(), type=NatsCredential)
    except msgspec.DecodeError as error:
        raise InvalidCredentialFile(f"{file} holds no NATS credential: user and password as JSON") from error


def _access(servers: list[str], source: CredentialFile, found: NatsCredential) -> Access:
    authority = str(Path(source.file).parent / found.ca_file) if found.ca_file else ""
    reading = CredentialFile(source.file, reader=True)
    reader = _access(servers, reading, found.reader) if found.reader is not None else None
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
        source=source,
    )
