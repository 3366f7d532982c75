"""The headers of requests forwarded on a client's behalf: which are kept, and those that assert the user.

A shard forwards requests of mounts and virtual resources to URLs of tenants; a front proxy forwards to shards and
mounts. Invariant: incoming identity headers are never forwarded, in any spelling; the asserted names mean the same user
everywhere, and carry no local privileges.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from urllib.parse import quote

from msgspec.structs import replace

from atoll.machinery.apiserver.authentication.request_headers import DEFAULT_FAMILY, belongs
from atoll.machinery.apiserver.authorization.effective_users import SCOPES, WARRANT, global_name_of
from atoll.machinery.apiserver.authorization.groups import RESERVED_EXTRA, is_privileged
from atoll.machinery.egress.forward import hop_headers
from atoll.machinery.meta.status import Unauthorized
from atoll.machinery.meta.user import AUTHENTICATED, User, is_service_account

#: Identity headers, never forwarded in any spelling.
IDENTITY = (*DEFAULT_FAMILY, "x-forwarded-", "forwarded", "x-kcp-", "x-kubernetes-sharded-request")
CREDENTIALS = ("authorization", "cookie", "impersonate-")


def passed_on(headers: Mapping[str, list[str]], dropped: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the headers of a client (by lower-case names) to forward, without those `dropped` (canonical prefixes)."""
    hop = hop_headers(headers.get("connection", ()))
    found = []
    for name, values in headers.items():
        if name not in hop and not belongs(name, dropped):
            found += [(name, value) for value in values]
    return found


def bare(user: User) -> User:
    """Return a user without warrants: those of one virtual workspace must not open another."""
    if WARRANT not in user.extra:
        return user
    return replace(user, extra={key: values for key, values in user.extra.items() if key != WARRANT})


def spoken_for(user: User, keeps: Container[str] = ()) -> list[tuple[str, str]]:
    """Return the headers that assert the user. Privileged groups are dropped, except those that `keeps` names, which
    another shard grants too. Raises Unauthorized."""
    if AUTHENTICATED not in user.groups or SCOPES in user.extra:
        # A user valid in some clusters only would be valid everywhere at the receiver.
        raise Unauthorized
    name = global_name_of(user) if is_service_account(user.name) else user.name
    if name is None:
        raise Unauthorized
    # Groups of service accounts are per cluster; under its global name an account is in none of them.
    groups = [
        group
        for group in user.groups
        if group == AUTHENTICATED or (name == user.name and (group in keeps or not is_privileged(group)))
    ]
    found = [("X-Remote-User", name), *(("X-Remote-Group", group) for group in groups)]
    for key, values in user.extra.items():
        if RESERVED_EXTRA not in key:
            found.extend((f"X-Remote-Extra-{quote(key, safe='')}", value) for value in values)
    if not all(value == value.strip() and value.isprintable() for _, value in found):
        # The receiver would strip its spaces, and read another user's name or a privileged group.
        raise Unauthorized
    return found
