"""Service accounts of clusters on other shards: whether they still stand is their own shard's word, asked and kept.

`ServiceAccountTokens` comes here with a token whose signature holds and whose cluster lies elsewhere. Authentication
does not wait: what is not known ends the attempt with `AuthenticationPending`, and the pipeline asks again once the
other shard answered. Answers live for ten seconds, so a deleted account dies within them; a shard that cannot be asked
says no for a moment. Invariant: nobody comes in whom his own shard has not vouched for within that time.
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
from atoll.machinery.meta.status import Unauthorized

log = structlog.get_logger()

#: How long an answer counts, and how long that there was none.
MAX_AGE_S, FAILED_AGE_S = 10.0, 1.0
MAX_ANSWERS = 8192
#: Tokens asked about at once, over all shards; whoever comes then is refused for now.
MAX_CHECKS = 256

#: Asks a shard whether the objects of a token stand. Raises ShardUnreachable.
AccountCheck = Callable[[str, Subject, str], Awaitable[bool]]


class ShardUnreachable(Exception):
    """A shard did not answer; the text may be logged."""


class _Answer(msgspec.Struct, frozen=True):
    stands: bool
    until: float


class RemoteServiceAccounts:
    """Answers of other shards. Belongs to one event loop."""

    def __init__(self, ask: AccountCheck, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask, self._clock = ask, clock
        self._answers: LruCache[bytes, _Answer] = LruCache(MAX_ANSWERS)
        self._asked: dict[bytes, asyncio.Task[None]] = {}

    def check(self, shard: str, subject: Subject, token: str, digest: bytes) -> None:
        """Return if the token's shard vouched for it. Raises Unauthorized, AuthenticationPending."""
        answer = self._answers.get(digest)
        if answer is None or self._clock() >= answer.until:
            if digest not in self._asked and len(self._asked) >= MAX_CHECKS:
                raise Unauthorized
            raise AuthenticationPending(partial(self._settle, shard, subject, token, digest))
        if not answer.stands:
            raise Unauthorized

    async def _settle(self, shard: str, subject: Subject, token: str, digest: bytes) -> None:
        task = self._asked.get(digest)
        if task is None:
            task = self._asked[digest] = asyncio.create_task(self._answer(shard, subject, token, digest))
        await asyncio.shield(task)

    async def _answer(self, shard: str, subject: Subject, token: str, digest: bytes) -> None:
        asked_at, age_s, stands = self._clock(), MAX_AGE_S, False
        try:
            stands = await self._ask(shard, subject, token)
        except ShardUnreachable as error:
            log.warning("service account cannot be judged", shard=shard, cluster=subject.cluster, reason=str(error))
            asked_at, age_s = self._clock(), FAILED_AGE_S
        finally:
            # What the shard said was so when it was asked, or later.
            self._answers.put(digest, _Answer(stands, asked_at + age_s))
            del self._asked[digest]
