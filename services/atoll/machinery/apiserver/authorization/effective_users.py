"""Effective users: the users as which a request's user counts in a logical cluster (kcp: EffectiveUsers).

The chain, escalation checks, impersonation and reviews call `effective_users`; no other module reads the extras for
scopes, warrants and the cluster of a service account. RBAC sees names and groups alone. Invariants: scopes only
restrict; the user of a warrant is subject to its own scopes; a user out of scope counts as anonymous, with
system:authenticated and the clusters it is scoped to (kcp: system:cluster:<name>), and nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator

import msgspec

from atoll.machinery.apiserver.authorization.groups import CLUSTER_GROUP_PREFIX
from atoll.machinery.meta.names import is_cluster_name
from atoll.machinery.meta.user import (
    ANONYMOUS,
    AUTHENTICATED,
    CLUSTER_NAME,
    UNAUTHENTICATED,
    User,
    global_name,
    is_service_account,
)

SCOPES = "authentication.kcp.io/scopes"
WARRANT = "authorization.kcp.io/warrant"

#: Limits of one request; kcp follows warrants without limit.
MAX_WARRANT_DEPTH = 4
MAX_USERS = 32
_CLUSTER_SCOPE = "cluster:"


class EffectiveUser(msgspec.Struct, frozen=True):
    """A user name and groups, as the subjects of bindings name them."""

    name: str
    groups: tuple[str, ...] = ()


class EffectiveUsers(msgspec.Struct, frozen=True):
    """The users as which one user counts: a right of any of `users` suffices.

    `own` is the user without warrants: itself if in scope, else anonymous.
    """

    users: tuple[EffectiveUser, ...]
    in_scope: bool

    @property
    def own(self) -> EffectiveUser:
        return self.users[0]

    @property
    def groups(self) -> frozenset[str]:
        return frozenset(group for user in self.users for group in user.groups)


class _Warrant(msgspec.Struct, frozen=True):
    user: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


_warrant_decoder = msgspec.json.Decoder(_Warrant)


def user_key(user: User) -> Hashable:
    """The parts of a user that `effective_users` reads, as a cache key."""
    extra = user.extra
    if not extra:
        return user.name, user.groups
    return user.name, user.groups, *(tuple(extra.get(key, ())) for key in (SCOPES, WARRANT, CLUSTER_NAME))


def effective_users(user: User, cluster: str) -> EffectiveUsers:
    """The effective users of a user in a logical cluster, warrants flattened."""
    users = tuple(dict.fromkeys(_users(user, cluster, MAX_WARRANT_DEPTH)))
    return EffectiveUsers(users[:MAX_USERS], in_scope(user, cluster))


def in_scope(user: User, cluster: str) -> bool:
    """Return whether the user counts as itself in a cluster.

    A service account without a cluster counts as one of this cluster, as in an access review inside a workspace.
    """
    allowed = _clusters(user)
    return allowed is None or cluster in allowed


def _clusters(user: User) -> frozenset[str] | None:
    """The clusters that a user is scoped to; None for all."""
    if not user.extra:
        return None
    allowed = _scope_clusters(user)
    home = user.extra.get(CLUSTER_NAME, ())
    if home and is_service_account(user.name):
        # Neither this server nor kcp issues an account with two home clusters.
        homes = frozenset(home) if len(home) == 1 else frozenset()
        allowed = homes if allowed is None else allowed & homes
    return allowed


def _scope_clusters(user: User) -> frozenset[str] | None:
    """The values of the extra are ANDed, the comma-separated parts of one value ORed; None without any."""
    allowed: frozenset[str] | None = None
    for value in user.extra.get(SCOPES, ()):
        parts = [part for part in value.split(",") if part.startswith(_CLUSTER_SCOPE)]
        named = frozenset(part.removeprefix(_CLUSTER_SCOPE) for part in parts)
        allowed = named if allowed is None else allowed & named
    return allowed


def _users(user: User, cluster: str, depth: int) -> Iterator[EffectiveUser]:
    allowed = _clusters(user)
    if allowed is None or cluster in allowed:
        yield EffectiveUser(user.name, user.groups)
    else:
        yield _anonymous(user, allowed)
    if (everywhere := _global_service_account(user, cluster)) is not None:
        yield everywhere
    if depth:
        for warrant in _warrants(user):
            yield from _users(warrant, cluster, depth - 1)


def _anonymous(user: User, allowed: frozenset[str]) -> EffectiveUser:
    if AUTHENTICATED not in user.groups:
        return EffectiveUser(ANONYMOUS, (UNAUTHENTICATED,))
    return EffectiveUser(ANONYMOUS, (AUTHENTICATED, *(CLUSTER_GROUP_PREFIX + name for name in sorted(allowed))))


def _global_service_account(user: User, cluster: str) -> EffectiveUser | None:
    """kcp's GlobalServiceAccount: the name by which other clusters grant rights to a service account."""
    name = global_name_of(user)
    if name is None:
        return None
    home, scoped = user.extra[CLUSTER_NAME][0], _scope_clusters(user)
    if scoped is not None and cluster not in scoped:
        return None
    groups = (AUTHENTICATED,) if AUTHENTICATED in user.groups else ()
    if cluster != home:
        groups = (*groups, CLUSTER_GROUP_PREFIX + home)
    return EffectiveUser(name, groups)


def global_name_of(user: User) -> str | None:
    """The global name of a service account; None for other users, and without exactly one home cluster."""
    home = user.extra.get(CLUSTER_NAME, ()) if user.extra else ()
    return global_name(user.name, home[0]) if len(home) == 1 and is_service_account(user.name) else None


def _warrants(user: User) -> Iterator[User]:
    for text in user.extra.get(WARRANT, ()) if user.extra else ():
        try:
            found = decode_warrant(text)
        except (msgspec.DecodeError, RecursionError):
            continue
        if is_service_account(found.name) and not found.extra.get(CLUSTER_NAME):
            continue  # without its cluster the name is ambiguous
        yield found


def scope_of(user: User) -> str:
    """What tells users of one name apart: the one cluster that the user is of, "" for a user of all clusters, and for
    one with other scopes or with warrants a text that names no cluster. Users of one name and scope have one identity,
    whatever their groups."""
    scopes, warrants = user.extra.get(SCOPES, ()), user.extra.get(WARRANT, ())
    homes = user.extra.get(CLUSTER_NAME, ()) if is_service_account(user.name) else ()
    if not (scopes or warrants or homes):
        return ""
    named = {each.removeprefix(_CLUSTER_SCOPE) if each.startswith(_CLUSTER_SCOPE) else "" for each in scopes}
    named.update(homes)
    if len(named) == 1 and not warrants and all(map(is_cluster_name, named)):
        return named.pop()
    return f"~{hashlib.sha256(msgspec.json.encode((scopes, warrants, homes))).hexdigest()}"


def decode_warrant(text: str) -> User:
    """The identity in a warrant. Raises msgspec.DecodeError and RecursionError."""
    raw = _warrant_decoder.decode(text)
    return User(raw.user, tuple(raw.groups), raw.uid, {key: tuple(values) for key, values in raw.extra.items()})


def encode_warrant(user: User) -> str:
    """The warrant with this identity."""
    extra = {key: list(values) for key, values in user.extra.items()}
    return msgspec.json.encode(_Warrant(user.name, user.uid, list(user.groups), extra)).decode()


def for_policy(user: User, cluster: str, prefix: str) -> tuple[EffectiveUser, ...]:
    """The effective users as an export's maximal permission policy names them: prefixed, accounts by global name."""
    return tuple(
        EffectiveUser(prefix + _policy_name(each.name, cluster), tuple(prefix + group for group in each.groups))
        for each in effective_users(user, cluster).users
    )


def _policy_name(name: str, cluster: str) -> str:
    """The global name of an account of the cluster; other names as they are."""
    return global_name(name, cluster) if is_service_account(name) else name
