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

from atoll.machinery.client.client import Client
from atoll.machinery.meta.status import ApiError
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.process.circuit import CircuitPolicy, Circuits
from atoll.machinery.wire.client import ClientError, Unreachable
from atoll.replication.peers import LOGICAL_CLUSTER_ADMIN, NoPeer, Peers

T = TypeVar("T")
FIRST_PAUSE_S, LONGEST_PAUSE_S, MAX_SHARDS = 0.25, 8.0, 4096
_CIRCUIT = CircuitPolicy(Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S, 1.0, 1.0))


class ShardUnavailable(Exception):
    """A shard did not answer. `unsent`: it was not asked either."""

    def __init__(self, shard: str, *, unsent: bool, text: str = "does not answer") -> None:
        super().__init__(f'shard "{shard}" {text}')
        self.shard, self.unsent = shard, unsent


class ShardCaller:
    """Calls of one shard to others. `clock` gives steady seconds."""

    def __init__(self, peers: Peers, clock: Callable[[], float] = time.monotonic) -> None:
        self._peers, self._clock = peers, clock
        self._circuits: Circuits[str] = Circuits(_CIRCUIT, MAX_SHARDS)

    async def call(self, shard: str, ask: Callable[[Client], Awaitable[T]], identity: str = LOGICAL_CLUSTER_ADMIN) -> T:
        """What a shard answers. Raises ApiError for what it refuses, and ShardUnavailable."""
        if not self._circuits.enter(shard, self._clock()):
            raise ShardUnavailable(shard, unsent=True)
        try:
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
        """Whether a shard failed a moment ago, so that a call would not even be tried."""
        return self._circuits.is_open(shard, self._clock())


def is_refusal(error: ApiError) -> bool:
    """Whether an answer says that nothing was done: the client's own mistakes, and a full disk."""
    return (400 <= error.code < 500 and error.code not in {408, 429}) or error.code == 507
