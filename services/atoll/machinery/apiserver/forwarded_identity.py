"""Requests that go out on a client's behalf: which of its headers go along, and how we say for whom we ask.

A shard's mounts and virtual resources pass requests on to URLs that tenants named, a front proxy to shards and mounts.
Invariant: identity headers that came in never go out, in whatever spelling, and the names we give out are those that
mean the same person everywhere, without the power that they have here.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from urllib.parse import quote

from msgspec.structs import replace

from atoll.machinery.apiserver.authentication.request_headers import DEFAULT_FAMILY, belongs
from atoll.machinery.apiserver.authorization.effective_users import SCOPES, WARRANT, global_name_of, is_service_account
from atoll.machinery.apiserver.authorization.groups import RESERVED_EXTRA, is_privileged
from atoll.machinery.egress.forward import hop_headers
from atoll.machinery.meta.status import Unauthorized
from atoll.machinery.meta.user import AUTHENTICATED, User

#: Never passed on, however they are spelled: they would say who asks.
IDENTITY = (*DEFAULT_FAMILY, "x-forwarded-", "forwarded", "x-kcp-", "x-kubernetes-sharded-request")
CREDENTIALS = ("authorization", "cookie", "impersonate-")


def passed_on(headers: Mapping[str, list[str]], dropped: tuple[str, ...]) -> list[tuple[str, str]]:
    """The headers of a client (by lower-case names) that go out with its request, without those `dropped` (prefixes,
    canonical)."""
    hop = hop_headers(headers.get("connection", ()))
    found = []
    for name, values in headers.items():
        if name not in hop and not belongs(name, dropped):
            found += [(name, value) for value in values]
    return found


def bare(user: User) -> User:
    """A user without warrants: what the view it came through lent it for one workspace opens no other view."""
    if WARRANT not in user.extra:
        return user
    return replace(user, extra={key: values for key, values in user.extra.items() if key != WARRANT})


def spoken_for(user: User, keeps: Container[str] = ()) -> list[tuple[str, str]]:
    """The headers that say for whom we ask. Power that a name has here is not taken along, but for the groups that are
    to be kept: another shard of ours means the same by them. Raises Unauthorized."""
    if AUTHENTICATED not in user.groups or SCOPES in user.extra:
        # Whoever is somebody in some clusters only would be somebody everywhere over there.
        raise Unauthorized
    name = global_name_of(user) if is_service_account(user.name) else user.name
    if name is None:
        raise Unauthorized
    # The groups of service accounts mean those of each cluster; by its global name an account is in none of them.
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
        # Over there it would be read without its spaces, and be somebody else's name or a group of power.
        raise Unauthorized
    return found
