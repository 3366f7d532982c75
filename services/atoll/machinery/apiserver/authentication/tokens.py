"""Sources of bearer tokens, and static tokens: the token file and the administrators' tokens of this process.

The authenticator tries each `TokenSource` in turn. Invariant: static tokens are stored as SHA-256 only, so neither a
memory dump nor the timing of a lookup reveals one.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Protocol

from atoll.machinery.apiserver.authentication.routing import bearer_token
from atoll.machinery.apiserver.authorization.groups import without_lifecycle
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.meta.user import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User
from atoll.machinery.wire.exchange import HttpRequest


class TokenSource(Protocol):
    """One kind of bearer token."""

    def user_of(self, token: str, digest: bytes, audiences: Sequence[str], snapshot: View) -> User | None:
        """The token's user, or None if the token is of another kind.

        `digest` is the token's SHA-256. Raises Unauthorized for a token of this kind that is invalid, expired, revoked,
        or not meant for any of the audiences.
        """


def token_digest(token: str) -> bytes:
    """SHA-256 of a token."""
    return hashlib.sha256(token.encode()).digest()


def authenticated(user: User) -> User:
    """The user with system:authenticated, and without the groups that only the shard itself may add.

    Every authenticator returns its users through this. The groups are kcp's system:kcp:initializer:* and
    system:kcp:terminator:*.
    """
    groups = without_lifecycle(user.groups)
    if user.name != ANONYMOUS and AUTHENTICATED not in groups and UNAUTHENTICATED not in groups:
        groups = (*groups, AUTHENTICATED)
    return user if groups == user.groups else User(user.name, groups, user.uid, user.extra)


class StaticTokens:
    """A table of tokens by their digest, valid for the API server's own audiences."""

    def __init__(self, users: Mapping[bytes, User], audiences: Sequence[str]) -> None:
        self.users = {digest: authenticated(user) for digest, user in users.items()}
        self._audiences = frozenset(audiences)

    def replace(self, users: Mapping[bytes, User]) -> Callable[[HttpRequest], bool] | None:
        """Replace the table. Return whether a request has a token that it said something else of, or None if all is
        as before."""
        before, self.users = self.users, {digest: authenticated(user) for digest, user in users.items()}
        gone = frozenset(digest for digest, user in before.items() if self.users.get(digest) != user)
        return partial(_has_token, gone) if before != self.users else None

    def user_of(self, token: str, digest: bytes, audiences: Sequence[str], snapshot: View) -> User | None:
        if self._audiences.isdisjoint(audiences):
            return None
        return self.users.get(digest)


def _has_token(digests: Collection[bytes], request: HttpRequest) -> bool:
    token = bearer_token(request)
    return token is not None and token_digest(token) in digests


def parse_token_file(text: str) -> dict[bytes, User]:
    """Users by token digest of a static token file: CSV of token, user, uid and optionally `"group1,group2"`.

    Raises ValueError with the number of the malformed record, never with a token.
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
