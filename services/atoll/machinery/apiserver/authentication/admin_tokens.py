"""Tokens of the built-in administrators, as kcp's `admin` and `user` batteries issue them.

A shard makes them at start, writes them into its kubeconfig and passes `users` to `tokens.StaticTokens`. As in kcp, the
file `.admin-token-store` holds the raw SHA-256 of the shard-admin's token and nothing else. Invariant: that token
survives a restart while the kubeconfig has it; the others are new at each start.
"""

from __future__ import annotations

import secrets
from pathlib import Path

import msgspec

from atoll.machinery.apiserver.authentication.tokens import token_digest
from atoll.machinery.apiserver.authorization.groups import KCP_ADMIN
from atoll.machinery.meta.user import MASTERS, User
from atoll.machinery.process.pki import write_private

FILE_NAME = ".admin-token-store"
SHARD_ADMIN = User("shard-admin", (MASTERS,), "shard-admin")
KCP_ADMINISTRATOR = User("kcp-admin", (KCP_ADMIN,), "kcp-admin")
PLAIN_USER = User("user", (), "user")
_TOKEN_BYTES = 32


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


def load_admin_tokens(store: Path, kept_token: str = "", *, with_user: bool = False) -> AdminTokens:
    """Return the administrators' tokens for this start. Raises OSError.

    `kept_token` is the shard-admin's token in an existing kubeconfig. It stays valid if `store` holds its hash;
    otherwise a new token is made and its hash is stored (mode 0600).
    """
    shard_admin = kept_token
    if not kept_token or not _stored(store, token_digest(kept_token)):
        shard_admin = secrets.token_urlsafe(_TOKEN_BYTES)
        write_private(store, token_digest(shard_admin))
    user = secrets.token_urlsafe(_TOKEN_BYTES) if with_user else ""
    return AdminTokens(shard_admin, secrets.token_urlsafe(_TOKEN_BYTES), user)


def _stored(store: Path, digest: bytes) -> bool:
    try:
        return secrets.compare_digest(store.read_bytes(), digest)
    except FileNotFoundError:
        return False
