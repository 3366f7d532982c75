"""Bearer tokens that are looked up: the static token file, and the administrators' tokens of this process.

The authenticator asks each `TokenSource` in turn. Tokens are kept as SHA-256 only, so neither a dump of the
process nor a lookup's timing tells one.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Mapping, Sequence
from typing import Protocol

from atoll.machinery.apiserver.authorization.groups import without_lifecycle
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.meta.user import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User


class TokenSource(Protocol):
    """One kind of bearer token."""

    def user_of(self, token: str, digest: bytes, audiences: Sequence[str], snapshot: View) -> User | None:
        """The token's user, or None if the token is of another kind.

        `digest` is its SHA-256. Raises Unauthorized for a token of this kind that is not (or no longer) good,
        or not meant for any of the audiences.
        """


def token_digest(token: str) -> bytes:
    """SHA-256 of a token."""
    return hashlib.sha256(token.encode()).digest()


def authenticated(user: User) -> User:
    """The user as every authenticator hands it on: with system:authenticated, without the groups that only
    the shard itself gives (kcp: system:kcp:initializer:*, system:kcp:terminator:*)."""
    groups = without_lifecycle(user.groups)
    if user.name != ANONYMOUS and AUTHENTICATED not in groups and UNAUTHENTICATED not in groups:
        groups = (*groups, AUTHENTICATED)
    return user if groups == user.groups else User(user.name, groups, user.uid, user.extra)


class StaticTokens:
    """A fixed table of tokens. Good for the API server's own audiences, whichever are asked for."""

    def __init__(self, users: Mapping[bytes, User], audiences: Sequence[str]) -> None:
        self._users = {digest: authenticated(user) for digest, user in users.items()}
        self._audiences = frozenset(audiences)

    def user_of(self, token: str, digest: bytes, audiences: Sequence[str], snapshot: View) -> User | None:
        if self._audiences.isdisjoint(audiences):
            return None
        return self._users.get(digest)


def parse_token_file(text: str) -> dict[bytes, User]:
    """Users by token digest of a static token file: CSV of token, user, uid and optionally `"group1,group2"`.

    Raises ValueError naming the line (never the token) of what is no such line.
    """
    users: dict[bytes, User] = {}
    for number, row in enumerate(csv.reader(io.StringIO(text), skipinitialspace=True), start=1):
        if not row or not any(row):
            continue
        if len(row) < 3:
            raise ValueError(f"token file, record {number}: at least token, user and uid are needed")
        token, name, uid, *rest = row
        if not token or not name:
            raise ValueError(f"token file, record {number}: token and user must not be empty")
        groups = tuple(group.strip() for group in rest[0].split(",") if group.strip()) if rest else ()
        users[token_digest(token)] = User(name, groups, uid)
    return users
