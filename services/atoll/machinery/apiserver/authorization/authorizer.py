"""The authorizer: decisions of the chain, cached while the state that they derive from does not change.

The pipeline calls it for every request; reviews, impersonation and admission call it for other questions. Invariant: a
decision is cached with the state versions of every cluster it derives from, and is used only while the snapshot of the
request shows the same versions, so a cached decision equals a new one.
"""

from __future__ import annotations

from collections.abc import Hashable

import msgspec

from atoll.machinery.apiserver.authorization import groups as names
from atoll.machinery.apiserver.authorization import rbac
from atoll.machinery.apiserver.authorization.attributes import Attributes, Decision
from atoll.machinery.apiserver.authorization.chain import MASTER, Depth, Evaluation, decide
from atoll.machinery.apiserver.authorization.effective_users import effective_users, for_policy, in_scope, user_key
from atoll.machinery.apiserver.authorization.policy_cache import PolicyCache
from atoll.machinery.apiserver.authorization.rbac import UserRules
from atoll.machinery.apiserver.authorization.state_versions import StateVersion, StateVersions
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import SYSTEM_ADMIN
from atoll.machinery.meta.user import User

#: Bytes of cached decisions, about 16,000 of usual users.
MAX_BYTES = 16 << 20
#: What an entry takes beside its texts.
_ENTRY_BYTES = 800
#: Decisions about longer texts are not cached: anybody chooses them.
_MAX_CHARACTERS = 512
_EVERYTHING = rbac.Rule(("*",), ("*",), ("*",))
_EVERY_PATH = rbac.Rule(("*",), urls=("*",))


class _CachedDecision(msgspec.Struct, frozen=True):
    decision: Decision
    versions: tuple[tuple[str, StateVersion], ...]
    size_bytes: int


def _size_bytes(cached: _CachedDecision) -> int:
    return cached.size_bytes


def _characters(attributes: Attributes) -> int:
    texts = (attributes.path, attributes.group, attributes.resource, attributes.subresource, attributes.namespace)
    return sum(map(len, texts))


def _user_characters(user: User) -> int:
    """The length of a user's texts, which whoever may impersonate chooses."""
    texts = [user.name, *user.groups, *(text for texts in (user.extra or {}).values() for text in texts)]
    return sum(map(len, texts))


class Authorizer:
    """Decides for one shard. Synchronous, without I/O except reads of the snapshot; one per event loop."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.versions = StateVersions()
        self.policies = PolicyCache()
        self._decisions: LruCache[Hashable, _CachedDecision] = LruCache(max_bytes, _size_bytes)

    def authorize(
        self, snapshot: View, attributes: Attributes, *, deep: bool = False, anywhere: bool = False
    ) -> Decision:
        """Decide by the snapshot's content, never by an overlay of unwritten changes.

        `deep` is kcp's deep access review: required groups, workspace access and maximal permission policies are
        skipped. Admission passes it, and reviews of system:masters (`reviews.is_deep`). `anywhere`: a cluster of
        another shard counts with what that shard published of it, as for a deep review; else nobody is allowed in it.
        """
        user = attributes.user
        if user.is_master and not user.extra:
            return MASTER
        depth = Depth.DEEP if deep else Depth.QUESTION if anywhere else Depth.REQUEST
        key = (
            user_key(user),
            attributes.cluster,
            attributes.verb,
            attributes.group,
            attributes.resource,
            attributes.subresource,
            attributes.namespace,
            attributes.path,
            attributes.wildcard,
            depth,
        )
        cached = self._decisions.get(key)
        if cached is not None and self._is_current(snapshot, cached):
            return cached.decision
        evaluation = Evaluation(self.versions, self.policies, snapshot, attributes, depth)
        decision = decide(evaluation)
        characters = _characters(attributes)
        if decision.lasting and characters <= _MAX_CHARACTERS:
            size_bytes = _ENTRY_BYTES + characters + _user_characters(user)
            self._decisions.put(key, _CachedDecision(decision, tuple(evaluation.versions.items()), size_bytes))
        return decision

    def sources(self, snapshot: View, attributes: Attributes) -> frozenset[str]:
        """Return the clusters whose state the decision about a request derives from."""
        evaluation = Evaluation(self.versions, self.policies, snapshot, attributes, Depth.REQUEST)
        decide(evaluation)
        return frozenset(evaluation.versions)

    def permits(self, snapshot: View, attributes: Attributes, cluster: str, export: str) -> bool:
        """Return whether the maximal permission policy of an export, in the export's cluster, permits a request.

        An export without a policy, and a deleted one, permit everything. A remote export that is unknown here permits
        nothing.
        """
        evaluation = Evaluation(self.versions, self.policies, snapshot, attributes, Depth.DEEP)
        state = evaluation.state(cluster)
        if state.is_remote and export not in state.bound.exports:
            return False
        if export not in state.bound.policed:
            return True
        users = for_policy(attributes.user, attributes.cluster, names.POLICY_PREFIX)
        return evaluation.granted_anywhere(cluster, users, attributes)

    def _is_current(self, snapshot: View, cached: _CachedDecision) -> bool:
        of = self.versions.of
        for cluster, version in cached.versions:  # noqa: SIM110  (the hot path: no generator)
            if of(snapshot, cluster) != version:
                return False
        return True

    def rules(self, snapshot: View, user: User, cluster: str, namespace: str) -> UserRules:
        """The rules that a user holds in the cluster and in the namespace ("": in the cluster alone)."""
        if user.is_master and in_scope(user, cluster):
            return UserRules([_EVERYTHING, _EVERY_PATH], [])
        users = effective_users(user, cluster).users
        local, bootstrap = self._policy(snapshot, cluster), self._policy(snapshot, SYSTEM_ADMIN)
        first = rbac.rules_of(bootstrap, (bootstrap,), users, namespace)
        second = rbac.rules_of(local, (local, bootstrap), users, namespace)
        return UserRules(list(dict.fromkeys([*first.rules, *second.rules])), [*first.errors, *second.errors])

    def _policy(self, snapshot: View, cluster: str) -> rbac.Policy:
        return self.policies.state(snapshot, cluster, self.versions.of(snapshot, cluster)).policy
