"""May they read it: asked of the shard, in a SubjectAccessReview, for each reader and each kind of request.

In a workspace the question is whether the reader may do the same to the resource there; it goes through the export's
own view, for which the export claims `subjectaccessreviews` and the workspace accepts that. Across all workspaces it is
whether the reader holds the verb on the export's content, asked in the export's workspace. Answers are kept for a few
seconds. Invariant: what was not answered with yes is refused, whatever the reason.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Sequence

import structlog

from atoll.machinery.apiserver.authentication.oidc.issuer_keys import AuthenticationPending
from atoll.machinery.apiserver.authorization.attributes import Attributes, Decision
from atoll.machinery.apiserver.authorization.effective_users import CLUSTER_NAME, user_key
from atoll.machinery.apiserver.authorization.groups import GLOBAL_SERVICE_ACCOUNT_PREFIX, SERVICE_ACCOUNT_PREFIX
from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import ApiError
from atoll.machinery.meta.user import User
from atoll.machinery.wire.pending_response import ClientError

log = structlog.get_logger()

REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", namespaced=False)
KEEP_S, KEEP_FAILED_S, TIMEOUT_S = 5.0, 1.0, 10.0
MAX_ANSWERS, MAX_UNDER_WAY = 8192, 64
_REFUSED = Decision(False)


class Reviews:
    """Decides. `home` looks at the export's workspace, `views` at the export's view on each shard with consumers."""

    def __init__(self, home: Client, export: str, views: Callable[[], Sequence[Client]]) -> None:
        self._home, self._export, self._views = home, export, views
        self._answers: LruCache[Hashable, tuple[float, Decision]] = LruCache(MAX_ANSWERS)
        self._room = asyncio.Semaphore(MAX_UNDER_WAY)

    def decide(self, asked: Attributes) -> Decision:
        """The answer, if it is known. Raises AuthenticationPending if the shard has to be asked first."""
        what = asked.group, asked.version, asked.resource_path, asked.namespace, asked.name
        key = (user_key(asked.user), asked.verb, asked.cluster, *what)
        known = self._answers.get(key)
        if known is not None and known[0] > time.monotonic():
            return known[1]

        async def settle() -> None:
            self._answers.put(key, await self._ask(asked))

        raise AuthenticationPending(settle)

    async def _ask(self, asked: Attributes) -> tuple[float, Decision]:
        """An answer, and until when it counts."""
        # A workspace is on one shard; every other does not know it, and says so.
        clients = [each.cluster(asked.cluster) for each in self._views()] if asked.cluster else [self._home]
        for client in clients:
            try:
                async with asyncio.timeout(TIMEOUT_S), self._room:
                    answer = await client.create(REVIEWS, self._question(asked))
            except (ApiError, ClientError, TimeoutError) as error:
                log.warning("access could not be reviewed", cluster=asked.cluster, error=f"{error!r}")
                continue
            status = answer.get("status") or {}
            allowed = status.get("allowed") is True and not status.get("denied")
            return time.monotonic() + KEEP_S, Decision(allowed, reason="" if allowed else "access denied")
        return time.monotonic() + KEEP_FAILED_S, _REFUSED

    def _question(self, asked: Attributes) -> Object:
        if asked.cluster:
            attributes = {
                "verb": asked.verb,
                "group": asked.group,
                "version": asked.version,
                "resource": asked.resource,
                "namespace": asked.namespace,
                "name": asked.name,
            }
        else:
            attributes = {
                "verb": asked.verb,
                "group": "apis.kcp.io",
                "version": "v1alpha2",
                "resource": "apiexports",
                "subresource": "content",
                "name": self._export,
            }
        user = at_home(asked.user, asked.cluster)
        spec: Object = {
            "user": user.name,
            "groups": list(user.groups),
            "resourceAttributes": attributes,
            "extra": {key: list(values) for key, values in user.extra.items()},
        }
        if user.uid:
            spec["uid"] = user.uid
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        return {**body, "metadata": {"name": ""}}


def at_home(user: User, cluster: str) -> User:
    """A service account by the name it has in its own workspace; shards name it by the one it has everywhere."""
    prefix = f"{GLOBAL_SERVICE_ACCOUNT_PREFIX}{cluster}:"
    if not cluster or not user.name.startswith(prefix):
        return user
    account = user.name.removeprefix(prefix)
    namespace = account.partition(":")[0]
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", *user.groups)
    return User(SERVICE_ACCOUNT_PREFIX + account, groups, user.uid, {**user.extra, CLUSTER_NAME: (cluster,)})
