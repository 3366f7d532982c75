"""Serves requests to follow events, in every process of a shard: admits them, counts them, and runs them.

`view` begins one for each request; `follow` sends. Invariants: what is refused of a question refuses all of it,
before anything is sent; an identity and a workspace have no more of them in a process than subscriptions.
"""

from __future__ import annotations

import time
from collections import Counter
from functools import partial

import structlog

from atoll.machinery.apiserver.authorization.effective_users import scope_of
from atoll.machinery.apiserver.catalog.shipped_kinds import KindsPending
from atoll.machinery.apiserver.request import Request, fail
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.status import ApiError, Details, Forbidden, Invalid
from atoll.machinery.storage.contract import Snapshot
from atoll.machinery.stream.tenants.subscriber_permissions import identity
from atoll.machinery.stream.tenants.subscriptions import Selected
from atoll.shard.subscriptions.access_check import AccessCheck, AccessDecision, Question
from atoll.shard.subscriptions.follow import Follow, Followed
from atoll.shard.subscriptions.follow_request import FollowRequest, follow_request
from atoll.shard.subscriptions.limits import CREDENTIAL_S, MAX_ON_ALL_SHARDS, MAX_PARTS, Limits
from atoll.shard.subscriptions.other_shards import has_identity
from atoll.shard.subscriptions.remote_follow import is_part

log = structlog.get_logger()


class FollowService:
    """`alone`: no shard beside this one has objects of an export's consumers."""

    def __init__(self, followed: Followed, access: AccessCheck, limits: Limits, *, alone: bool) -> None:
        self._followed, self._access, self._limits, self._alone = followed, access, limits, alone
        #: Those that run, by what is bounded: identities, clusters, answers over several shards.
        self._running: Counter[str] = Counter()

    def of(self, cluster: str, expires_s: float) -> _Admission:
        """Return what serves a request to a cluster; its credential ends then, in Unix seconds, 0 for never."""
        return _Admission(self, cluster, expires_s)

    async def serve(self, request: Request, cluster: str, expires_s: float) -> None:
        """Serve a request to the end."""
        try:
            wanted = follow_request(request.http, cluster, request.user)
            decision = await self._admitted(wanted)
            places = self._take_places(request, wanted.question)
        except Exception as error:
            fail(request, error)
            return
        latest_s = time.time() + CREDENTIAL_S
        ends_s = min(expires_s, latest_s) if expires_s else latest_s
        follow = Follow(self._followed, wanted, decision, partial(self.decided, wanted.question), ends_s)
        try:
            request.start(wanted.media_type)
            await follow.run(request.exchange)
        except ConnectionResetError:
            log.debug("client left while it followed events", audit_id=request.audit_id)
        except Exception as error:
            log.error("following events failed", audit_id=request.audit_id, exc_info=error)
            request.exchange.abort()
        finally:
            self._running -= Counter(places)
            request.done()

    async def _admitted(self, wanted: FollowRequest) -> AccessDecision:
        """The decision of what is asked for, all of which is granted. Raises Forbidden, Invalid."""
        question = wanted.question
        with self._followed.store.snapshot() as snapshot:
            if not is_part(question) and not self._access.may_enter(snapshot, question.user, question.cluster):
                raise _refused("access denied")
        if question.identity and not self._alone and self._followed.remote is None:
            message = "its resources are on shards for which this one has no credentials; follow each workspace"
            raise Invalid(f"events of an identity cannot be followed: {message}", _DETAILS)
        decision = await self.decided(question)
        if decision.refused:
            named = [
                (ResourceType(each.group, each.resource).group_resource, each.message) for each in decision.refused
            ]
            text = "; ".join(f"{name}: {message}" for name, message in named)
            if any(each.reason == "NotStreamed" for each in decision.refused):
                raise Invalid(f"events cannot be followed: {text}", _DETAILS)
            raise _refused(text)
        if not decision.selected:
            raise _refused(decision.reason)
        return decision

    async def decided(self, question: Question) -> AccessDecision:
        """Decide at the latest state. A question that cannot be answered is one without the right."""
        while True:
            try:
                with self._followed.store.snapshot() as snapshot:
                    if is_part(question):
                        return self._part(snapshot, question)
                    return self._access.decide(snapshot, question)
            except KindsPending as pending:
                await pending.fetch()
            except ApiError as error:
                return AccessDecision(
                    "Revoked", f"the right could not be checked: {error}", sources=(question.cluster,)
                )

    def _part(self, snapshot: Snapshot, question: Question) -> AccessDecision:
        """Decide for the shard of an export: believed is who owns the cluster, about the identity that it has there."""
        if not has_identity(snapshot.replicas, question.cluster, question.identity):
            return AccessDecision("Revoked", "the identity is of no export of another shard")
        names = (each.partition(".") for each in question.resources)
        types = (ResourceType(group, resource, question.identity) for resource, _, group in names)
        passed = [each for each in types if self._access.may_pass_on(each)]
        selected = (Selected(each.group, each.resource, each.identity, question.full) for each in passed)
        return AccessDecision("Active", "", tuple(selected))

    def _take_places(self, request: Request, question: Question) -> tuple[str, ...]:
        limits = {
            identity(request.user.name, scope_of(request.user)): (self._limits.per_identity, "you have"),
            f"workspace {question.cluster}": (self._limits.per_workspace, "the workspace has"),
        }
        if is_part(question):
            limits = {"parts": (MAX_PARTS, "shards have")}
        elif question.identity and self._followed.remote is not None:
            limits["all shards"] = MAX_ON_ALL_SHARDS, "identities of all shards have"
        for place, (limit, whose) in limits.items():
            if self._running[place] >= limit:
                raise _refused(f"{whose} {limit} connections that follow events, the limit")
        self._running.update(limits.keys())
        return tuple(limits)


class _Admission:
    """`request.RemoteView`: served here, as a task."""

    def __init__(self, service: FollowService, cluster: str, expires_s: float) -> None:
        self._service, self._cluster, self._expires_s = service, cluster, expires_s

    def serve(self, request: Request, snapshot: Snapshot) -> None:
        """Answer later."""
        request.exchange.spawn(self._service.serve(request, self._cluster, self._expires_s))


_DETAILS = Details("", "events.atoll.dev", "follow")


def _refused(text: str) -> Forbidden:
    return Forbidden(f"following events is forbidden: {text}", _DETAILS)
