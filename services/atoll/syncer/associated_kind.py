"""One kind of associated objects: what is needed of it, and its watch.

`associated` makes one for each kind that rules name. Invariants: an object is observed once and not kept; what only
relates others, and what has no status and of which no field is asked for, is watched by its metadata.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Set
from sys import intern

import msgspec

from atoll.machinery.client.client import Client
from atoll.machinery.edge.associated import AssociatedQuery, Field, Kind, field_values
from atoll.machinery.edge.associated_states import MAX_PHASE, Observed
from atoll.machinery.edge.failures import Failure
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.meta.objects import Object, status_of
from atoll.syncer.associated_index import AssociatedIndex, Tie, ties_of
from atoll.syncer.follower import Follower, Key, key_of
from atoll.syncer.kinds import Kind as ServedKind

#: Told of each object that changed, None if it went, with the object itself.
Observe = Callable[[ObjectRef, Observed | None, Object | None], None]


class Needs(msgspec.Struct, frozen=True):
    """What all rules need of one kind: keys of labels, fields, and whether it is counted or only relates others."""

    labels: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    is_counted: bool = False

    @classmethod
    def of(cls, queries: Iterable[AssociatedQuery]) -> dict[Kind, Needs]:
        """Return what is needed of each kind."""
        found: dict[Kind, Needs] = {}
        for rule in (rule for each in queries for rule in each.rules):
            for kind in rule.owners:
                found.setdefault(kind, cls())
            before = found.get(rule.kind, cls())
            labels = tuple(sorted({*before.labels, *([rule.label] if rule.label else [])}))
            fields = {each.name: each for each in (*rule.fields, *before.fields)}
            found[rule.kind] = cls(labels, tuple(each for _, each in sorted(fields.items())), True)
        return found


class AssociatedKind:
    """A kind that is followed, once started."""

    def __init__(
        self, client: Client, served: ServedKind, needs: Needs, index: AssociatedIndex, observe: Observe
    ) -> None:
        self._served, self._needs, self._index, self._observe = served, needs, index, observe
        self._is_whole = needs.is_counted and (served.has_status or bool(needs.fields))
        self._follower = Follower(client if self._is_whole else client.metadata(), served.resource, self)
        # A list of an older state says all that there is to say.
        self._follower.restored = lambda: None
        self._task: asyncio.Task[None] | None = None
        self._listener: Callable[[], None] = lambda: None
        self.is_read = False
        resource = served.resource
        version = f"{resource.group}/{resource.version}" if resource.group else resource.version
        #: apiVersion and kind.
        self.version_and_kind = version, served.kind

    @property
    def refusal(self) -> Failure | None:
        """Why the cluster does not let it be read."""
        return self._follower.refusal

    def is_same(self, served: ServedKind, needs: Needs) -> bool:
        """Whether it is followed as it would be now."""
        return (self._served, self._needs) == (served, needs)

    def start(self, read: Callable[[], None]) -> None:
        """Follow it; `read` is called once it was read whole."""
        self._listener = read
        self._task = asyncio.create_task(self._follower.run())

    def stop(self) -> asyncio.Task[None] | None:
        """Follow it no more; return what ends then."""
        if self._task is not None:
            self._task.cancel()
        return self._task

    def ties(self, ref: ObjectRef, obj: Object) -> tuple[Tie, ...]:
        """Return what an object may be found by."""
        return ties_of(ref, obj, self._needs.labels)

    # --- what the follower reads

    def changed(self, obj: Object) -> None:
        """Take an object."""
        ref = self._ref(key_of(obj))
        self._observe(ref, self._observed(ref, obj), obj)

    def gone(self, obj: Object) -> None:
        """Forget an object."""
        self._observe(self._ref(key_of(obj)), None, None)

    def complete(self, keys: Set[Key]) -> None:
        """Forget what a list does not have."""
        for ref in self._index.refs((self._served.resource.group, self._served.resource.plural)):
            if (ref.namespace, ref.name) not in keys:
                self._observe(ref, None, None)
        if not self.is_read:
            self.is_read = True
            self._listener()

    def reached(self, revision: str) -> None:
        """Revisions are the follower's."""

    def _ref(self, key: Key) -> ObjectRef:
        return ObjectRef(self._served.resource.group, self._served.resource.plural, *key)

    def _observed(self, ref: ObjectRef, obj: Object) -> Observed:
        uid = str(obj["metadata"]["uid"])
        if not self._is_whole:
            return Observed(ref, uid)
        # A cluster of which nobody asks that does not load the language of the tests.
        from atoll.machinery.edge.summaries.broken import default_breakage

        status = status_of(obj)
        phase = status.get("phase")
        phase = intern(phase[:MAX_PHASE]) if isinstance(phase, str) else ""
        fields = dict(field_values(obj, self._needs.fields)) or None
        sent = {name: value for name, value in obj.items() if name != "status"}
        row = {"inventory": {}, "obj": sent, "sent": sent, "returned": {"status": status}, "propagation": {}}
        row["associated"] = {}
        found = default_breakage(ref, row) if status else None
        if found is None:
            return Observed(ref, uid, phase, fields=fields)
        before = self._index.get(ref)
        is_same = before is not None and before.reason == found.reason
        at_s = before.at_s if before is not None and is_same else time.monotonic()
        return Observed(ref, uid, phase, intern(found.reason), intern(found.message), found.after_s, at_s, fields)
