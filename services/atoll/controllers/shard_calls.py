"""Calls of controllers to other shards, with a deadline and exponential back-off for each shard.

The controllers of Workspaces, LogicalClusters and endpoint slices use `ShardCaller`; requests go through
`replication.peers`. After a failure a shard is not called for a while, twice as long each time, and then by one caller
first, so that a shard that is down does not block all workers. Invariant: `ShardUnavailable.unsent` is true only where
this request cannot have been executed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from atoll.machinery.client.client import Client
from atoll.machinery.meta.status import ApiError
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.process.circuit import CircuitPolicy, Circuits
from atoll.machinery.wire.client import ClientError, Unreachable
from atoll.replication.peers import LOGICAL_CLUSTER_ADMIN, TIMEOUT_S, NoPeer, Peers

T = TypeVar("T")
FIRST_PAUSE_S, LONGEST_PAUSE_S, MAX_SHARDS = 0.25, 8.0, 4096
_CIRCUIT = CircuitPolicy(Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S, 1.0, 1.0))


class ShardUnavailable(Exception):
    """A shard did not answer. `unsent`: no request was sent."""

    def __init__(self, shard: str, *, unsent: bool, text: str = "does not answer") -> None:
        super().__init__(f'shard "{shard}" {text}')
        self.shard, self.unsent = shard, unsent


class ShardCaller:
    """Calls of one shard to others. `clock` returns monotonic seconds."""

    def __init__(self, peers: Peers, clock: Callable[[], float] = time.monotonic) -> None:
        self._peers, self._clock = peers, clock
        self._circuits: Circuits[str] = Circuits(_CIRCUIT, MAX_SHARDS)

    async def call(self, shard: str, ask: Callable[[Client], Awaitable[T]], identity: str = LOGICAL_CLUSTER_ADMIN) -> T:
        """Return what a shard answers, to all requests of `ask` within `TIMEOUT_S`. Raises its ApiError, and
        ShardUnavailable."""
        if not self._circuits.enter(shard, self._clock()):
            raise ShardUnavailable(shard, unsent=True)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                answer = await ask(self._peers.client(shard, identity))
        except (Unreachable, NoPeer) as error:
            self._circuits.failed(shard, self._clock())
            raise ShardUnavailable(shard, unsent=True) from error
        except (ClientError, TimeoutError) as error:
            self._circuits.failed(shard, self._clock())
            raise ShardUnavailable(shard, unsent=False) from error
        except ApiError as error:
            self._circuits.succeeded(shard)
            if is_refusal(error):
                raise
            raise ShardUnavailable(shard, unsent=False) from error
        except BaseException:
            self._circuits.abandoned(shard)
            raise
        self._circuits.succeeded(shard)
        return answer

    def is_resting(self, shard: str) -> bool:
        """Return whether a shard is in back-off, so that a call would not be sent."""
        return self._circuits.is_open(shard, self._clock())


def is_refusal(error: ApiError) -> bool:
    """Return whether an error proves that nothing was written: 4xx but 408 and 429, and a full disk (507)."""
    return (400 <= error.code < 500 and error.code not in {408, 429}) or error.code == 507
