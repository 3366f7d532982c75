"""Warrants, scopes and foreign service accounts: the one place that says as whom a user counts in a cluster.

The chain, escalation checks, impersonation and reviews call `effective_users`; nobody else reads the three extras.
RBAC then knows plain names and groups only. Invariant: scopes only take away; a warrant's user is itself
subject to its own scopes; whoever is out of scope counts as anonymous, with the fact that somebody
authenticated and where from (kcp: system:cluster:<name>), and as nothing else.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import msgspec

from atoll.machinery.apiserver.authorization.groups import (
    CLUSTER_GROUP_PREFIX,
    GLOBAL_SERVICE_ACCOUNT_PREFIX,
    SERVICE_ACCOUNT_PREFIX,
)
from atoll.machinery.meta.user import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User

SCOPES = "authentication.kcp.io/scopes"
CLUSTER_NAME = "authentication.kcp.io/cluster-name"
WARRANT = "authorization.kcp.io/warrant"

#: kcp follows warrants without end; a request may not make us do that.
MAX_WARRANT_DEPTH = 4
MAX_IDENTITIES = 32
_CLUSTER_SCOPE = "cluster:"


class EffectiveUser(msgspec.Struct, frozen=True):
    """A name and groups, as the subjects of bindings know them."""

    name: str
    groups: tuple[str, ...] = ()


class EffectiveUsers(msgspec.Struct, frozen=True):
    """As whom a user counts: any of `identities` holding a right is enough.

    `own` is the user without warrants: itself in scope, else its anonymous self.
    """

    identities: tuple[EffectiveUser, ...]
    in_scope: bool

    @property
    def own(self) -> EffectiveUser:
        return self.identities[0]

    @property
    def groups(self) -> frozenset[str]:
        return frozenset(group for identity in self.identities for group in identity.groups)


class _Warrant(msgspec.Struct, frozen=True):
    user: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


_warrant_decoder = msgspec.json.Decoder(_Warrant)


def user_key(user: User) -> Hashable:
    """What distinguishes users for authorization: everything `effective_users` looks at."""
    extra = user.extra
    if not extra:
        return user.name, user.groups
    return user.name, user.groups, *(tuple(extra.get(key, ())) for key in (SCOPES, WARRANT, CLUSTER_NAME))


def is_service_account(name: str) -> bool:
    return name.startswith(SERVICE_ACCOUNT_PREFIX)


def effective_users(user: User, cluster: str) -> EffectiveUsers:
    """As whom a user counts in a logical cluster, warrants flattened."""
    identities = tuple(dict.fromkeys(_identities(user, cluster, MAX_WARRANT_DEPTH)))
    return EffectiveUsers(identities[:MAX_IDENTITIES], in_scope(user, cluster))


def in_scope(user: User, cluster: str) -> bool:
    """Whether the user counts as itself there. A service account of no named cluster is taken for a local one
    (an access review inside a workspace names one so)."""
    allowed = _clusters(user)
    return allowed is None or cluster in allowed


def _clusters(user: User) -> frozenset[str] | None:
    """The clusters a user is confined to; None for everywhere."""
    if not user.extra:
        return None
    allowed = _scope_clusters(user)
    home = user.extra.get(CLUSTER_NAME, ())
    if home and is_service_account(user.name):
        # Two home clusters at once is no identity that we or kcp would issue.
        homes = frozenset(home) if len(home) == 1 else frozenset()
        allowed = homes if allowed is None else allowed & homes
    return allowed


def _scope_clusters(user: User) -> frozenset[str] | None:
    """Values of the extra are ANDed, the comma separated parts of one are ORed; None where there is none."""
    allowed: frozenset[str] | None = None
    for value in user.extra.get(SCOPES, ()):
        parts = [part for part in value.split(",") if part.startswith(_CLUSTER_SCOPE)]
        named = frozenset(part.removeprefix(_CLUSTER_SCOPE) for part in parts)
        allowed = named if allowed is None else allowed & named
    return allowed


def _identities(user: User, cluster: str, depth: int) -> Iterator[EffectiveUser]:
    allowed = _clusters(user)
    if allowed is None or cluster in allowed:
        yield EffectiveUser(user.name, user.groups)
    else:
        yield _anonymous(user, allowed)
    if (everywhere := _global_service_account(user, cluster)) is not None:
        yield everywhere
    if depth:
        for warrant in _warrants(user):
            yield from _identities(warrant, cluster, depth - 1)


def _anonymous(user: User, allowed: frozenset[str]) -> EffectiveUser:
    if AUTHENTICATED not in user.groups:
        return EffectiveUser(ANONYMOUS, (UNAUTHENTICATED,))
    return EffectiveUser(ANONYMOUS, (AUTHENTICATED, *(CLUSTER_GROUP_PREFIX + name for name in sorted(allowed))))


def _global_service_account(user: User, cluster: str) -> EffectiveUser | None:
    """kcp's GlobalServiceAccount: the name by which other clusters may grant rights to a service account."""
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
    """The name by which a service account is known everywhere; None for others, and without one home cluster."""
    home = user.extra.get(CLUSTER_NAME, ()) if user.extra else ()
    return global_name(user.name, home[0]) if len(home) == 1 and is_service_account(user.name) else None


def global_name(service_account: str, cluster: str) -> str:
    """`system:kcp:serviceaccount:<cluster>:<namespace>:<name>` of a `system:serviceaccount:...` user."""
    return f"{GLOBAL_SERVICE_ACCOUNT_PREFIX}{cluster}:{service_account.removeprefix(SERVICE_ACCOUNT_PREFIX)}"


def _warrants(user: User) -> Iterator[User]:
    for text in user.extra.get(WARRANT, ()) if user.extra else ():
        try:
            raw = _warrant_decoder.decode(text)
        except msgspec.DecodeError:
            continue
        if is_service_account(raw.user) and not raw.extra.get(CLUSTER_NAME):
            continue  # a name that means another account in every cluster warrants nothing
        extra = {key: tuple(values) for key, values in raw.extra.items()}
        yield User(raw.user, tuple(raw.groups), raw.uid, extra)


def for_policy(user: User, cluster: str, prefix: str) -> tuple[EffectiveUser, ...]:
    """The identities as an export's maximal permission policy names them: prefixed, accounts globally."""
    return tuple(
        EffectiveUser(prefix + _policy_name(identity.name, cluster), tuple(prefix + group for group in identity.groups))
        for identity in effective_users(user, cluster).identities
    )


def _policy_name(name: str, cluster: str) -> str:
    """An account that counts as itself in a cluster is an account of that cluster."""
    return global_name(name, cluster) if is_service_account(name) else name
