"""One subscription in the memory of the keeper, and the index of all.

`keeper` and `marks` change entries; nobody else sees them. Invariant: the index answers by owner, by cluster and by the
name of a consumer, and an entry is in all three or in none.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from atoll.machinery.stream.tenants.subscriber_permissions import SLOTS
from atoll.machinery.stream.tenants.subscriptions import Lag, StreamPart
from atoll.shard.subscriptions.access_check import Question
from atoll.shard.subscriptions.consumers import Progress
from atoll.shard.subscriptions.records import StoredSubscription
from atoll.shard.subscriptions.shared_rows import SharedSubscription

_NO_PARTS: tuple[StreamPart, ...] = ()


class Entry:
    """A subscription. `revision` is that of its row, 0 while it is being made."""

    def __init__(self, stored: StoredSubscription, revision: int = 0) -> None:
        self.stored, self.revision = stored, revision
        #: Held while the row is written or the consumer changed.
        self.changing = asyncio.Lock()
        #: Clusters from whose state the last decision derives.
        self.sources: tuple[str, ...] = ()
        #: When it is checked again in any case, in Unix seconds.
        self.due_s = 0.0
        self.progress: Progress | None = None
        #: Until when the consumer was paused, in Unix seconds.
        self.paused_until_s = 0.0
        #: What the row for other shards has, its revision, and the parts that the subscriber has heard of.
        self.shared: SharedSubscription | None = None
        self.shared_revision, self.announced = 0, _NO_PARTS
        #: When the consumer was last changed, on the monotonic clock, and whether the row is older than `stored`.
        self.changed_s, self.unsaved = 0.0, False
        self._behind_since_s = 0.0

    @property
    def key(self) -> tuple[str, str, str]:
        return self.stored.owner, self.stored.cluster, self.stored.request.name

    @property
    def is_active(self) -> bool:
        return self.stored.state == "Active"

    @property
    def question(self) -> Question:
        """What is checked."""
        stored, request = self.stored, self.stored.request
        return Question(stored.cluster, stored.user, request.resources, request.identity, request.full)

    def note(self, now: Progress) -> bool:
        """Take in how far the consumer is; return whether its owner read or asked since the last time."""
        before, self.progress = self.progress, now
        if not now.outstanding:
            self._behind_since_s = 0.0
        elif not self._behind_since_s or (before is not None and now.acked > before.acked):
            self._behind_since_s = time.time()
        moved = before is None or (now.acked, now.delivered) != (before.acked, before.delivered)
        return now.waiting > 0 or (moved and before is not None)

    @property
    def lag(self) -> Lag:
        """How far behind its subscriber is."""
        if self.progress is None or not self.progress.outstanding:
            return Lag()
        return Lag(self.progress.outstanding, round(max(0.0, time.time() - self._behind_since_s), 1))


class Index:
    """All subscriptions of a shard."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[str, str, str], Entry] = {}
        self._by_owner: dict[str, dict[int, Entry]] = {}
        self._by_cluster: dict[str, set[Entry]] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Entry]:
        """Yield those of now, whatever changes meanwhile."""
        return iter(tuple(self._by_key.values()))

    def find(self, owner: str, cluster: str, name: str) -> Entry | None:
        """Return a subscription that was asked for here by its name."""
        entry = self._by_key.get((owner, cluster, name))
        return entry if entry is not None and not entry.stored.home else None

    def of_owner(self, owner: str, cluster: str) -> list[Entry]:
        """Return an owner's subscriptions in one cluster that were asked for here, by name."""
        mine = [each for each in self._by_owner.get(owner, {}).values() if not each.stored.home]
        found = [each for each in mine if each.stored.cluster == cluster]
        return sorted(found, key=lambda entry: entry.stored.request.name)

    def count_of(self, cluster: str) -> int:
        """Return the number of subscriptions in a cluster."""
        return len(self._by_cluster.get(cluster, ()))

    def free_slot(self, owner: str, limit: int, first: int = 0) -> int | None:
        """Return a slot that an owner has not taken, the next one from `first`; None if it has as many as allowed."""
        taken = self._by_owner.get(owner, {})
        slots = ((first + number) % SLOTS for number in range(SLOTS))
        return next((slot for slot in slots if slot not in taken), None) if len(taken) < limit else None

    def is_taken(self, owner: str, slot: int) -> bool:
        """Whether a slot of an owner has a subscription."""
        return slot in self._by_owner.get(owner, {})

    def keys(self) -> frozenset[tuple[str, str, str]]:
        """Return owner, cluster and name of each."""
        return frozenset(self._by_key)

    def has(self, entry: Entry) -> bool:
        """Whether an entry is still there."""
        return self._by_key.get(entry.key) is entry

    def add(self, entry: Entry) -> None:
        """Add a subscription, whose name and slot are free."""
        self._by_key[entry.key] = entry
        self._by_owner.setdefault(entry.stored.owner, {})[entry.stored.slot] = entry
        self._by_cluster.setdefault(entry.stored.cluster, set()).add(entry)

    def remove(self, entry: Entry) -> None:
        """Remove a subscription."""
        del self._by_key[entry.key]
        slots = self._by_owner[entry.stored.owner]
        del slots[entry.stored.slot]
        if not slots:
            del self._by_owner[entry.stored.owner]
        members = self._by_cluster[entry.stored.cluster]
        members.discard(entry)
        if not members:
            del self._by_cluster[entry.stored.cluster]
