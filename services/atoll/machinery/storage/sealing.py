"""Sealing at rest: AES-256-GCM of whole objects of configured types (a shard configures Secrets).

The writer seals before bytes reach LMDB; snapshots, lists and watches unseal. Log and internal streams carry the sealed
record. A sealed record is

    key id (4 bytes) | nonce (12 bytes) | AES-256-GCM of the JSON with its revision hole zeroed

with key id, group, resource, identity and the names of the object as additional data, so that a record moved to another
object or cluster cannot be unsealed. Invariant: plaintext of a sealed type is in no page of the file.
"""

from __future__ import annotations

import base64
import fcntl
import os
import secrets
import stat
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from atoll.machinery.meta.names import ResourceType

_KEY_ID = struct.Struct(">I")
_NONCE_SIZE = 12
_HEAD_SIZE = _KEY_ID.size + _NONCE_SIZE
_KEY_SIZE = 32
#: What a key file that cannot be read means. It is never made again: another key opens nothing.
_LOST = ": without its sealing keys no Secret of the store can be read; restore the file from a backup"


class KeyFileInvalid(Exception):
    """The key file is absent, malformed or readable by others, or lacks the key."""


class SealingError(Exception):
    """A record cannot be unsealed: its key is missing, or it was altered or moved."""


class _Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: int
    secret: str


class _KeyFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    primary: int
    keys: tuple[_Key, ...]


class Sealer:
    """Seals with the primary key, unseals with any key of the file. Reads the file again for an unknown id."""

    def __init__(self, key_file: Path) -> None:
        self._path = key_file
        #: The primary key's id and all ciphers: replaced as one, as the thread that commits may seal meanwhile.
        self._keys: tuple[int, dict[int, AESGCM]] = (0, {})
        self.reload()

    @property
    def primary(self) -> int:
        """The id of the key that seals."""
        return self._keys[0]

    def reload(self) -> None:
        """Read the key file. Raise KeyFileInvalid."""
        parsed = _read(self._path)
        ciphers = {key.id: AESGCM(_secret(self._path, key)) for key in parsed.keys}
        if parsed.primary not in ciphers:
            raise KeyFileInvalid(f"{self._path}: the primary key {parsed.primary} is not among the keys{_LOST}")
        self._keys = parsed.primary, ciphers

    def seal(self, type: ResourceType, relative_key: bytes, plain: bytes) -> bytes:
        """Return JSON (its hole zeroed) as a sealed record."""
        primary, ciphers = self._keys
        head = _KEY_ID.pack(primary) + secrets.token_bytes(_NONCE_SIZE)
        data = _additional_data(head, type, relative_key)
        return head + ciphers[primary].encrypt(head[_KEY_ID.size :], plain, data)

    def open(self, type: ResourceType, relative_key: bytes, record: bytes) -> bytes:
        """Return the JSON with its hole zeroed. Raise SealingError."""
        if len(record) < _HEAD_SIZE:
            raise SealingError("record is truncated")
        number = key_id(record)
        cipher = self._keys[1].get(number) or self._reloaded(number)
        data = _additional_data(record, type, relative_key)
        try:
            return cipher.decrypt(record[_KEY_ID.size : _HEAD_SIZE], record[_HEAD_SIZE:], data)
        except InvalidTag:
            raise SealingError(f"record does not open with key {number}") from None

    def _reloaded(self, number: int) -> AESGCM:
        try:
            self.reload()
        except KeyFileInvalid as error:
            raise SealingError(str(error)) from error
        cipher = self._keys[1].get(number)
        if cipher is None:
            raise SealingError(f"key {number} is not in the key file")
        return cipher


def key_id(record: bytes) -> int:
    """Return the id of the key that a record is sealed with."""
    number: int = _KEY_ID.unpack_from(record)[0]
    return number


def ensure_key_file(path: Path) -> None:
    """Write a key file (0600) with one new key, unless it exists. Safe against a concurrent call."""
    with _edit_lock(path):
        if not path.exists():
            _write(path, _KeyFile(1, (_fresh_key(1),)))


def add_key(path: Path) -> int:
    """Add a new key as the primary one. Return its id. `LmdbStore.reseal` moves objects to it."""
    with _edit_lock(path):
        parsed = _read(path)
        number = max(key.id for key in parsed.keys) + 1
        _write(path, _KeyFile(number, (*parsed.keys, _fresh_key(number))))
        return number


def remove_key(path: Path, number: int) -> None:
    """Remove a key; records sealed with it cannot be read again. Raise KeyFileInvalid for the primary, or if absent."""
    with _edit_lock(path):
        parsed = _read(path)
        _require_removable(path, parsed, number)
        _write(path, _KeyFile(parsed.primary, tuple(key for key in parsed.keys if key.id != number)))


def primary_key(path: Path) -> int:
    """Return the id of the primary key. Raise KeyFileInvalid."""
    return _read(path).primary


def numbers(path: Path) -> tuple[int, ...]:
    """Return the numbers of all keys. Raise KeyFileInvalid."""
    return tuple(sorted(key.id for key in _read(path).keys))


def require_numbers(path: Path, wanted: Iterable[int]) -> None:
    """Raise KeyFileInvalid unless the file has these keys."""
    missing = sorted(set(wanted).difference(numbers(path)))
    if missing:
        raise KeyFileInvalid(f"{path} lacks the sealing keys {', '.join(map(str, missing))}")


def require_removable(path: Path, number: int) -> None:
    """Raise KeyFileInvalid if a key is the primary one or absent."""
    _require_removable(path, _read(path), number)


def _require_removable(path: Path, parsed: _KeyFile, number: int) -> None:
    if number == parsed.primary:
        raise KeyFileInvalid(f"{path}: key {number} is the primary key")
    if number not in {key.id for key in parsed.keys}:
        raise KeyFileInvalid(f"{path}: there is no key {number}")


@contextmanager
def _edit_lock(path: Path) -> Iterator[None]:
    """Serialize changes, so that of two commands neither loses the other's key."""
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def _additional_data(head: bytes, type: ResourceType, relative_key: bytes) -> bytes:
    words = (type.group, type.resource, type.identity)
    return head[: _KEY_ID.size] + "\0".join(words).encode() + b"\0" + relative_key


def _fresh_key(number: int) -> _Key:
    return _Key(number, base64.b64encode(secrets.token_bytes(_KEY_SIZE)).decode())


def _secret(path: Path, key: _Key) -> bytes:
    with suppress(ValueError):
        secret = base64.b64decode(key.secret, validate=True)
        if len(secret) == _KEY_SIZE and 0 < key.id < 1 << 32:
            return secret
    raise KeyFileInvalid(f"{path}: key {key.id} is not 32 bytes in base64, or its id is out of range{_LOST}")


def _read(path: Path) -> _KeyFile:
    try:
        mode = path.stat().st_mode
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise KeyFileInvalid(f"{path} is missing{_LOST}") from error
    except OSError as error:
        raise KeyFileInvalid(f"{path}: {error.strerror}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise KeyFileInvalid(f"{path} must be readable by its owner alone (0600)")
    try:
        return msgspec.json.decode(raw, type=_KeyFile)
    except msgspec.DecodeError as error:
        raise KeyFileInvalid(f"{path} {'holds no keys' if raw.strip() else 'is empty'}{_LOST}") from error


def _write(path: Path, content: _KeyFile) -> None:
    """Replace the file durably and atomically: a lost key loses every record sealed with it."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(fd, msgspec.json.encode(content))
        os.fsync(fd)
    finally:
        os.close(fd)
    fresh.replace(path)
    parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)
