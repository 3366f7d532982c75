"""The shards of the site, from the Shard objects in the state stream of the shard `root`.

`changes` follows the changes of each. Events are verified with the keys of the NATS credential, which Shard objects
renew. Invariant: `root` is always one of them; while its stream is not reached, the shards known last are.
"""

from __future__ import annotations

from collections.abc import Callable

from atoll.machinery.kcp.sharding.ownership import ROOT_SHARD
from atoll.machinery.meta.names import ROOT
from atoll.machinery.meta.wellknown import CORE_GROUP
from atoll.machinery.stream.connection import Access
from atoll.machinery.stream.consumer.gaps import Gap
from atoll.machinery.stream.consumer.state_consumer import ConsumerOptions, StateConsumer, StateMark
from atoll.machinery.stream.events import Event, Operation
from atoll.machinery.stream.permissions import follower_consumer
from atoll.machinery.stream.subjects import STATE, control_subject, is_shard_name, resource_filter
from atoll.replication.shard_keys import ShardKeys, announced_keys

MAX_SHARDS = 1000


class SiteShards:
    """`run` it as a task. `changed` is called when `names` is another."""

    def __init__(self, access: Access, changed: Callable[[], None]) -> None:
        self._keys = ShardKeys(access.event_keys or {}, None)
        self._changed = changed
        #: Names of the shards, in order.
        self.names: tuple[str, ...] = (ROOT_SHARD,)
        self._announced: dict[str, list[str]] = {}
        self._brought: set[str] = set()
        options = ConsumerOptions(
            ROOT_SHARD,
            (resource_filter(STATE, ROOT_SHARD, CORE_GROUP, "shards"), control_subject(STATE, ROOT_SHARD)),
            follower_consumer(access.user or "edge"),
            keys=lambda: self._keys.of(ROOT_SHARD),
        )
        self._consumer = StateConsumer(access, options, self)

    async def run(self) -> None:
        """Follow until cancelled."""
        await self._consumer.run()

    @property
    def behind_s(self) -> float:
        """For how many seconds NATS may have had changes that are not read."""
        return self._consumer.behind_s

    def mark(self) -> StateMark | None:
        """Nothing is kept: the few Shards are read at each connection."""
        return None

    async def begin(self, gap: Gap) -> None:
        """All Shards are read from here on."""
        self._brought = set()

    async def apply(self, events: list[Event], mark: StateMark | None) -> None:
        """Take Shard objects."""
        for event in events:
            if event.key is None or event.key.cluster != ROOT or not is_shard_name(event.key.name):
                continue
            name = event.key.name
            if event.operation is Operation.DELETED:
                self._announced.pop(name, None)
            elif name in self._announced or len(self._announced) < MAX_SHARDS:
                self._announced[name] = announced_keys(event.payload)
                self._brought.add(name)
        if mark is not None:
            self._publish()

    async def sweep(self, mark: StateMark) -> None:
        """Forget the shards that the reading did not bring."""
        self._announced = {name: keys for name, keys in self._announced.items() if name in self._brought}
        self._publish()

    def _publish(self) -> None:
        self._keys.announce(self._announced)
        self._consumer.keys_changed()
        names = tuple(sorted({ROOT_SHARD, *self._announced}))
        if names != self.names:
            self.names = names
            self._changed()
