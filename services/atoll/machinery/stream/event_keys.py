"""The keys of a shard that sign its events: kept in a file, announced before use, accepted for a time afterwards.

`publisher` signs with the current one; the Shard object, `stream.json` and the credentials of other processes name the
public halves. Invariant: whoever learned the announced keys within `LEAD_S` believes the next key before it signs, and
a key is announced for at most `OVERLAP_S` after another has replaced it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from atoll.machinery.process.ed25519 import SecretKey, is_public_key, key_id, make_secret
from atoll.machinery.process.private_files import write_private

#: A new key is announced for so long before it signs.
LEAD_S = 600
#: A replaced key is believed for so long: changes live two hours in their stream, and a process may have been away.
OVERLAP_S = 24 * 3600
#: The file in a shard's root directory, for a shard whose credential file has no keys.
KEYS_FILE = "event-keys.json"
#: The most keys of one shard that are believed.
MAX_KEYS = 8


class InvalidKeysFile(Exception):
    """A file whose keys cannot be read. The text names the file and quotes nothing of it."""


class SigningKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A secret key, and the second since 1970 from which it signs."""

    secret: str
    since_s: int = 0


class _KeysFile(msgspec.Struct, frozen=True):
    signing_keys: list[SigningKey]


class EventKeys:
    """The keys of one shard. Raises ValueError for a key that is none, or without any."""

    def __init__(self, keys: Sequence[SigningKey]) -> None:
        if not keys:
            raise ValueError("a shard needs a key to sign its events")
        self._keys = [(each.since_s, SecretKey(each.secret)) for each in sorted(keys, key=lambda key: key.since_s)]

    @property
    def current(self) -> SecretKey:
        """The key that signs now."""
        now = time.time()
        return next((key for since_s, key in reversed(self._keys) if since_s <= now), self._keys[0][1])

    @property
    def announced(self) -> tuple[str, ...]:
        """The public keys to believe now: the current one, those to come, those replaced less than `OVERLAP_S` ago."""
        ends = [since_s + OVERLAP_S for since_s, _ in self._keys[1:]]
        now = time.time()
        kept = [key.public for (_, key), end in zip(self._keys, ends, strict=False) if end > now]
        return (*kept, self._keys[-1][1].public)[-MAX_KEYS:]


def new_key(since_s: int = 0) -> SigningKey:
    """A new key that signs from a second on."""
    return SigningKey(make_secret(), since_s)


def load_keys(path: Path) -> list[SigningKey]:
    """The keys of a file; the first one is made if there is no file. Raises InvalidKeysFile, OSError."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_KeysFile).signing_keys
        EventKeys(found)
    except FileNotFoundError:
        found = [new_key()]
        _write(path, {"signing_keys": found})
    except (msgspec.DecodeError, ValueError) as error:
        raise InvalidKeysFile(f"{path} holds no keys of events") from error
    return found


def rotate_key(path: Path) -> SigningKey:
    """Add a key to a file that holds some, which signs in `LEAD_S`. Raises InvalidKeysFile, OSError."""
    try:
        document: dict[str, Any] = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        keys = msgspec.convert(document.get("signing_keys") or [], list[SigningKey])
        EventKeys(keys)
    except (msgspec.DecodeError, msgspec.ValidationError, ValueError) as error:
        raise InvalidKeysFile(f"{path} holds no keys of events") from error
    added = new_key(int(time.time()) + LEAD_S)
    _write(path, {**document, "signing_keys": [*keys, added][-MAX_KEYS:]})
    return added


def by_id(public: Sequence[str]) -> Mapping[str, str]:
    """Public keys by their ids, at most `MAX_KEYS`; what is no key is left out."""
    return {key_id(key): key for key in list(public)[:MAX_KEYS] if is_public_key(key)}


def _write(path: Path, document: Mapping[str, object]) -> None:
    write_private(path, msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
