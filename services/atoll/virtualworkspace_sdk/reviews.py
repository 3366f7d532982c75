"""Authorizes reads of a view by SubjectAccessReviews at the shard.

In a workspace the review checks the same verb on the resource there; it goes through the export's own view, for which
the export claims `subjectaccessreviews` and the workspace accepts the claim. Across all workspaces it checks the verb
on the export's content, in the export's workspace. Results are cached for a few seconds. Invariant: every result
other than an explicit yes is a refusal.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Sequence

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
MAX_ANSWERS, MAX_UNDER_WAY = 8192, 64
_REFUSED = Decision(False)


class Reviews:
    """The authorizer.

    `home` is a client of the export's workspace, `views` of the export's view on each shard with consumers.
    """

    def __init__(self, home: Client, export: str, views: Callable[[], Sequence[Client]]) -> None:
        self._home, self._export, self._views = home, export, views
        self._answers: LruCache[Hashable, tuple[float, Decision]] = LruCache(MAX_ANSWERS)
        self._room = asyncio.Semaphore(MAX_UNDER_WAY)

    def decide(self, attributes: Attributes) -> Decision:
        """Return the cached decision. Raises AuthenticationPending if the shard has to be queried first."""
        resource = attributes.group, attributes.version, attributes.resource_path, attributes.namespace, attributes.name
        key = (user_key(attributes.user), attributes.verb, attributes.cluster, *resource)
        cached = self._answers.get(key)
        if cached is not None and cached[0] > time.monotonic():
            return cached[1]

        async def complete() -> None:
            self._answers.put(key, await self._review(attributes))

        raise AuthenticationPending(complete)

    async def _review(self, attributes: Attributes) -> tuple[float, Decision]:
        """Return a decision, and when it expires."""
        # A workspace is on one shard; all others refuse the review.
        clients = [each.cluster(attributes.cluster) for each in self._views()] if attributes.cluster else [self._home]
        for client in clients:
            try:
                async with asyncio.timeout(TIMEOUT_S), self._room:
                    answer = await client.create(REVIEWS, self._review_body(attributes))
            except (ApiError, ClientError, TimeoutError) as error:
                log.warning("access review failed", cluster=attributes.cluster, error=f"{error!r}")
                continue
            status = status_of(answer)
            allowed = status.get("allowed") is True and not status.get("denied")
            return time.monotonic() + KEEP_S, Decision(allowed, reason="" if allowed else "access denied")
        return time.monotonic() + KEEP_FAILED_S, _REFUSED

    def _review_body(self, attributes: Attributes) -> Object:
        if attributes.cluster:
            review = {
                "verb": attributes.verb,
                "group": attributes.group,
                "version": attributes.version,
                "resource": attributes.resource,
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
