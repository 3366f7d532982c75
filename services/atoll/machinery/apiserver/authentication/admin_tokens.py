"""Tokens of the built-in administrators, as kcp's `admin` and `user` batteries issue them.

A shard makes them at start, writes them into its kubeconfig and passes `users` to `tokens.StaticTokens`. As in kcp, the
file `.admin-token-store` holds the raw SHA-256 of the shard-admin's token and nothing else; kcp-admin has its own file.
Invariant: a token survives a restart if the kubeconfig has it and its hash is stored. That of `user` is always new.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

import msgspec

from atoll.machinery.apiserver.authentication.tokens import token_digest
from atoll.machinery.apiserver.authorization.groups import KCP_ADMIN
from atoll.machinery.meta.user import MASTERS, User
from atoll.machinery.process.private_files import write_private

#: The file with the token's hash by user.
FILE_NAMES = {"shard-admin": ".admin-token-store", "kcp-admin": ".kcp-admin-token-store"}
SHARD_ADMIN = User("shard-admin", (MASTERS,), "shard-admin")
KCP_ADMINISTRATOR = User("kcp-admin", (KCP_ADMIN,), "kcp-admin")
PLAIN_USER = User("user", (), "user")
_TOKEN_BYTES = _DIGEST_BYTES = 32


class AdminTokens(msgspec.Struct, frozen=True):
    """The tokens in clear text, for the kubeconfig alone. `user` is empty unless requested."""

    shard_admin: str
    kcp_admin: str
    user: str = ""

    def __repr__(self) -> str:
        return "AdminTokens(...)"

    @property
    def users(self) -> dict[bytes, User]:
        """Users by token digest."""
        table = {token_digest(self.shard_admin): SHARD_ADMIN}
        table[token_digest(self.kcp_admin)] = KCP_ADMINISTRATOR
        if self.user:
            table[token_digest(self.user)] = PLAIN_USER
        return table


def load_admin_tokens(root: Path, kept: Mapping[str, str] | None = None, *, with_user: bool = False) -> AdminTokens:
    """Return the administrators' tokens for this start. Raises OSError.

    `kept` are the tokens by user in an existing kubeconfig. One stays valid if its hash is stored in `root`; otherwise
    a new token is made and its hash is stored (mode 0600).
    """
    found = {user: _load(root / file, (kept or {}).get(user, "")) for user, file in FILE_NAMES.items()}
    user = secrets.token_urlsafe(_TOKEN_BYTES) if with_user else ""
    return AdminTokens(found["shard-admin"], found["kcp-admin"], user)


def stored_users(root: Path, earlier: Mapping[bytes, User]) -> dict[bytes, User]:
    """The administrators by the digest of their tokens, as stored; where no hash can be read, as in `earlier`."""
    found: dict[bytes, User] = {}
    for user in (SHARD_ADMIN, KCP_ADMINISTRATOR):
        try:
            digest = (root / FILE_NAMES[user.name]).read_bytes()
        except OSError:
            digest = b""
        if len(digest) == _DIGEST_BYTES:
            found[digest] = user
        else:
            found |= {known: each for known, each in earlier.items() if each.name == user.name}
    return found


def rotate_admin_tokens(root: Path) -> dict[str, str]:
    """Make new tokens, store their hashes, and return the tokens by user; none where none are stored. Raises OSError.

    A running shard accepts those before for a while.
    """
    return {user: _make(root / file) for user, file in FILE_NAMES.items() if (root / file).exists()}


def _load(store: Path, kept: str) -> str:
    return kept if kept and _stored(store, token_digest(kept)) else _make(store)


def _make(store: Path) -> str:
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    write_private(store, token_digest(token))
    return token


def _stored(store: Path, digest: bytes) -> bool:
    try:
        return secrets.compare_digest(store.read_bytes(), digest)
    except FileNotFoundError:
        return False
