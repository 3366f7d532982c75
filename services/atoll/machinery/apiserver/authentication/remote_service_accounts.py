"""Service accounts of logical clusters on other shards: their own shard is asked whether they still exist.

`ServiceAccountTokens` calls `check` with a verified token of a remote cluster. Authentication does not wait: an unknown
token raises `AuthenticationPending`, and the pipeline authenticates again when the other shard has answered. An answer
is valid for ten seconds, so a deleted account is refused within them. While a shard does not answer, requests with its
tokens are a 503 for one second at a time: on a 401 clients forget their token. Invariant: no account is accepted that
its own shard has not confirmed within that time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
import structlog

from atoll.machinery.apiserver.authentication.oidc.issuer_keys import AuthenticationPending
from atoll.machinery.apiserver.authentication.service_account_claims import Subject
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.status import Details, ServiceUnavailable, Unauthorized

log = structlog.get_logger()

#: Validity of an answer, and of a failure to get one.
MAX_AGE_S, FAILED_AGE_S = 10.0, 1.0
MAX_ANSWERS = 8192
#: Checks in flight over all shards; a token beyond them is answered 503.
MAX_CHECKS = 256

#: Asks a shard whether the objects of a token exist. Raises ShardUnreachable.
AccountCheck = Callable[[str, Subject, str], Awaitable[bool]]


class ShardUnreachable(Exception):
    """A shard did not answer. The text may be logged."""


class _Answer(msgspec.Struct, frozen=True):
    #: None: the shard did not answer.
    is_valid: bool | None
    until: float


class RemoteServiceAccounts:
    """Answers of other shards. One per event loop."""

    def __init__(self, check: AccountCheck, clock: Callable[[], float] = time.monotonic) -> None:
        self._check_at, self._clock = check, clock
        self._answers: LruCache[bytes, _Answer] = LruCache(MAX_ANSWERS)
        self._checks: dict[bytes, asyncio.Task[None]] = {}

    def check(self, shard: str, subject: Subject, token: str, digest: bytes) -> None:
        """Return if the token's shard confirmed it. Raises Unauthorized, ServiceUnavailable, AuthenticationPending."""
        answer = self._answers.get(digest)
        if answer is None or self._clock() >= answer.until:
            if digest not in self._checks and len(self._checks) >= MAX_CHECKS:
                raise _unavailable()
            raise AuthenticationPending(partial(self._await_answer, shard, subject, token, digest))
        if answer.is_valid is None:
            raise _unavailable()
        if not answer.is_valid:
            raise Unauthorized

    async def _await_answer(self, shard: str, subject: Subject, token: str, digest: bytes) -> None:
        task = self._checks.get(digest)
        if task is None:
            task = self._checks[digest] = asyncio.create_task(self._fetch_answer(shard, subject, token, digest))
        await asyncio.shield(task)

    async def _fetch_answer(self, shard: str, subject: Subject, token: str, digest: bytes) -> None:
        asked_at, age_s = self._clock(), MAX_AGE_S
        is_valid: bool | None = None
        try:
            is_valid = await self._check_at(shard, subject, token)
        except ShardUnreachable as error:
            log.warning(
                "service account check at shard failed", shard=shard, cluster=subject.cluster, reason=str(error)
            )
            asked_at, age_s = self._clock(), FAILED_AGE_S
        finally:
            # The age counts from the request: the answer describes a state no older than that.
            self._answers.put(digest, _Answer(is_valid, asked_at + age_s))
            del self._checks[digest]


def _unavailable() -> ServiceUnavailable:
    return ServiceUnavailable("the shard of the service account cannot be reached", Details(retry_after_s=1))
