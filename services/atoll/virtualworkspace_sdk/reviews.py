"""Authorizes requests of a view by SubjectAccessReviews at the shard.

In a workspace the review checks the same verb on the resource there; it goes through the export's own view, for which
the export claims `subjectaccessreviews` and the workspace accepts the claim. Across all workspaces it checks the verb
on the export's content, in the export's workspace. Results are cached for a few seconds, and until `permissions` says
that they may be different. Invariants: every result other than an explicit yes is a refusal; a shard that does not
answer delays nothing but the reviews of its own workspaces.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Sequence
from weakref import WeakKeyDictionary

import msgspec
import structlog

from atoll.machinery.apiserver.authentication.oidc.issuer_keys import AuthenticationPending
from atoll.machinery.apiserver.authorization.attributes import Attributes, Decision
from atoll.machinery.apiserver.authorization.effective_users import user_key
from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.objects import Object, status_of
from atoll.machinery.meta.status import ApiError
from atoll.machinery.meta.user import CLUSTER_NAME, GLOBAL_SERVICE_ACCOUNT_PREFIX, SERVICE_ACCOUNT_PREFIX, User
from atoll.machinery.wire.pending_response import ClientError

log = structlog.get_logger()

REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", namespaced=False)
KEEP_S, KEEP_FAILED_S, TIMEOUT_S = 5.0, 1.0, 10.0
#: `MAX_PENDING` reviews at a time go to each shard.
MAX_ANSWERS, MAX_CHANGED, MAX_PENDING = 8192, 65536, 64
_REFUSED = Decision(False)


class _Answer(msgspec.Struct, frozen=True):
    """A decision, when its review began, and when it expires."""

    decision: Decision
    began: float
    expires: float


class Reviews:
    """The authorizer.

    `home` is a client of the export's workspace; `shards` returns clients of the export's view: on the shard of a
    workspace, or on every shard with consumers while that is not known.
    """

    def __init__(self, home: Client, export: str, shards: Callable[[str], Sequence[Client]]) -> None:
        self._home, self._export, self._shards = home, export, shards
        self._answers: LruCache[Hashable, _Answer] = LruCache(MAX_ANSWERS)
        self._changed: LruCache[str, float] = LruCache(MAX_CHANGED)
        self._pending: dict[Hashable, asyncio.Task[None]] = {}
        self._rooms: WeakKeyDictionary[Client, asyncio.Semaphore] = WeakKeyDictionary()

    def changed(self, cluster: str) -> None:
        """Use no earlier result for a cluster ("": for requests across all)."""
        self._changed.put(cluster, time.monotonic())

    def decide(self, attributes: Attributes) -> Decision:
        """Return the cached decision. Raises AuthenticationPending if the shard has to be queried first."""
        resource = attributes.group, attributes.version, attributes.resource_path, attributes.namespace, attributes.name
        key = (user_key(attributes.user), attributes.verb, attributes.cluster, *resource)
        found = self._answers.get(key)
        if found is not None and found.expires > time.monotonic() and found.began > self._changed_at(attributes):
            return found.decision

        async def complete() -> None:
            work = self._pending.get(key)
            if work is None:
                work = self._pending[key] = asyncio.create_task(self._keep(key, attributes))
                work.add_done_callback(lambda _: self._pending.pop(key, None))
            await asyncio.wait({work})

        raise AuthenticationPending(complete)

    def _changed_at(self, attributes: Attributes) -> float:
        return self._changed.get(attributes.cluster) or 0.0

    async def _keep(self, key: Hashable, attributes: Attributes) -> None:
        began = time.monotonic()
        allowed = await self._review(attributes)
        now = time.monotonic()
        if allowed is None:
            answer = _Answer(_REFUSED, began, now + KEEP_FAILED_S)
        else:
            answer = _Answer(Decision(allowed, reason="" if allowed else "access denied"), began, now + KEEP_S)
        self._answers.put(key, answer)

    async def _review(self, attributes: Attributes) -> bool | None:
        """Return whether the request is allowed; None if no shard answered."""
        # A workspace is on one shard; all others refuse the review.
        clients = self._shards(attributes.cluster) if attributes.cluster else [self._home]
        asked = [asyncio.create_task(self._ask(client, attributes)) for client in clients]
        try:
            for each in asyncio.as_completed(asked):
                if (allowed := await each) is not None:
                    return allowed
        finally:
            for task in asked:
                task.cancel()
        return None

    async def _ask(self, client: Client, attributes: Attributes) -> bool | None:
        room = self._rooms.setdefault(client, asyncio.Semaphore(MAX_PENDING))
        there = client.cluster(attributes.cluster) if attributes.cluster else client
        try:
            async with asyncio.timeout(TIMEOUT_S), room:
                answer = await there.create(REVIEWS, self._review_body(attributes))
        except (ApiError, ClientError, TimeoutError) as error:
            log.warning("access review failed", cluster=attributes.cluster, error=f"{error!r}")
            return None
        status = status_of(answer)
        return status.get("allowed") is True and not status.get("denied")

    def _review_body(self, attributes: Attributes) -> Object:
        if attributes.cluster:
            review = {
                "verb": attributes.verb,
                "group": attributes.group,
                "version": attributes.version,
                "resource": attributes.resource,
                "subresource": attributes.subresource,
                "namespace": attributes.namespace,
                "name": attributes.name,
            }
        else:
            review = {
                "verb": attributes.verb,
                "group": "apis.kcp.io",
                "version": "v1alpha2",
                "resource": "apiexports",
                "subresource": "content",
                "name": self._export,
            }
        user = at_home(attributes.user, attributes.cluster)
        spec: Object = {
            "user": user.name,
            "groups": list(user.groups),
            "resourceAttributes": review,
            "extra": {key: list(values) for key, values in user.extra.items()},
        }
        if user.uid:
            spec["uid"] = user.uid
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        return {**body, "metadata": {"name": ""}}


def at_home(user: User, cluster: str) -> User:
    """Return a service account under the name of its own workspace, where shards send its global name."""
    prefix = f"{GLOBAL_SERVICE_ACCOUNT_PREFIX}{cluster}:"
    if not cluster or not user.name.startswith(prefix):
        return user
    account = user.name.removeprefix(prefix)
    namespace = account.partition(":")[0]
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", *user.groups)
    return User(SERVICE_ACCOUNT_PREFIX + account, groups, user.uid, {**user.extra, CLUSTER_NAME: (cluster,)})
