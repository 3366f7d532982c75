"""Calls to other shards by controllers: bounded in time, and not repeated at a shard that does not answer.

The controllers of Workspaces, LogicalClusters and endpoint slices ask `ShardCaller`; requests go on through
`replication.peers`. A shard that fails is left alone for a while, twice as long each time, and asked by one caller
first: a shard that is down must not hold up all workers, which have other shards to serve. Invariant:
`ShardUnavailable.unsent` is true only where this very request cannot have been carried out.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from atoll.machinery.client.client import Client
from atoll.machinery.meta.status import ApiError
from atoll.machinery.wire.client import ClientError, Unreachable
from atoll.replication.peers import LOGICAL_CLUSTER_ADMIN, TIMEOUT_S, NoPeer, Peers

T = TypeVar("T")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 8.0


class ShardUnavailable(Exception):
    """A shard did not answer. `unsent`: it was not asked either."""

    def __init__(self, shard: str, *, unsent: bool, text: str = "does not answer") -> None:
        super().__init__(f'shard "{shard}" {text}')
        self.shard, self.unsent = shard, unsent


class _Pause(msgspec.Struct):
    """A shard that failed: until when it is left alone, how long that is, and whether somebody asks it meanwhile."""

    until: float
    length_s: float
    probed: bool = False


class ShardCaller:
    """Calls of one shard to others. `clock` gives steady seconds."""

    def __init__(self, peers: Peers, clock: Callable[[], float] = time.monotonic) -> None:
        self._peers, self._clock = peers, clock
        #: By shard; there are never more than have a Shard object.
        self._pauses: dict[str, _Pause] = {}

    async def call(self, shard: str, ask: Callable[[Client], Awaitable[T]], identity: str = LOGICAL_CLUSTER_ADMIN) -> T:
        """What a shard answers. Raises ApiError for what it refuses, and ShardUnavailable."""
        self._check(shard)
        try:
            answer = await ask(self._peers.client(shard, identity))
        except (Unreachable, NoPeer) as error:
            self._failed(shard)
            raise ShardUnavailable(shard, unsent=True) from error
        except (ClientError, TimeoutError) as error:
            self._failed(shard)
            raise ShardUnavailable(shard, unsent=False) from error
        except ApiError as error:
            self._pauses.pop(shard, None)
            if is_refusal(error):
                raise
            raise ShardUnavailable(shard, unsent=False) from error
        self._pauses.pop(shard, None)
        return answer

    def is_resting(self, shard: str) -> bool:
        """Whether a shard failed a moment ago, so that a call would not even be tried."""
        pause = self._pauses.get(shard)
        return pause is not None and self._clock() < pause.until

    def _check(self, shard: str) -> None:
        pause = self._pauses.get(shard)
        if pause is None:
            return
        now = self._clock()
        if now < pause.until:
            raise ShardUnavailable(shard, unsent=True)
        # One asks; others wait for what it finds.
        pause.until, pause.probed = now + TIMEOUT_S, True

    def _failed(self, shard: str) -> None:
        pause, now = self._pauses.get(shard), self._clock()
        if pause is None:
            self._pauses[shard] = _Pause(now + FIRST_PAUSE_S, FIRST_PAUSE_S)
        elif pause.probed or now >= pause.until:
            # Those that were under way when the first failed say nothing new.
            pause.length_s = min(pause.length_s * 2, LONGEST_PAUSE_S)
            pause.until, pause.probed = now + pause.length_s, False


def is_refusal(error: ApiError) -> bool:
    """Whether an answer says that nothing was done: the client's own mistakes, and a full disk."""
    return (400 <= error.code < 500 and error.code not in {408, 429}) or error.code == 507
