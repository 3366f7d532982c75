"""Stores of shards that are lost for good, as the operator recorded them on the Shard `root`.

`kubectl atoll shard forget` writes the record; followers drop and refuse what such a store says, controllers give up
its clusters, and a process that finds its own store there ends. Pure. Invariant: a record names one store for ever, as
uids are not given twice; a new store under the same shard name is a new shard.
"""

from __future__ import annotations

import msgspec

from atoll.machinery.meta.conditions import find
from atoll.machinery.meta.objects import Object, annotations_of, conditions_of
from atoll.machinery.meta.times import parse_time

#: Annotation of the Shard `root`: JSON, a list of records. system:masters alone write it.
FORGOTTEN = "internal.atoll.dev/forgotten-stores"
#: The most records. They go to every process of the site.
MAX_FORGOTTEN = 1000


class StoreForgotten(Exception):
    """This process runs on a store that was struck off."""

    def __init__(self, store: str) -> None:
        super().__init__(f"the store {store} was forgotten by the operator of this site: it serves nothing any more")


class ForgottenStore(msgspec.Struct, frozen=True):
    """A store by its uid, the name of its shard, and when it was struck off (RFC 3339)."""

    shard: str
    store: str
    at: str


_decoder = msgspec.json.Decoder(tuple[ForgottenStore, ...])


def forgotten_stores(root_shard: Object) -> tuple[ForgottenStore, ...]:
    """Return the records on the Shard object `root`; none where the annotation is absent or invalid."""
    try:
        return _decoder.decode(annotations_of(root_shard).get(FORGOTTEN) or "[]")
    except (msgspec.DecodeError, ValueError):
        return ()


def with_forgotten(root_shard: Object, record: ForgottenStore) -> Object:
    """Return the Shard object `root` with one more record; unchanged if it has one of this store.

    Raises ValueError if there are too many.
    """
    known = forgotten_stores(root_shard)
    if any(each.store == record.store for each in known):
        return root_shard
    if len(known) >= MAX_FORGOTTEN:
        raise ValueError(f"{MAX_FORGOTTEN} stores are recorded as forgotten, which is the most")
    metadata = root_shard["metadata"]
    text = msgspec.json.encode([*known, record]).decode()
    return {**root_shard, "metadata": {**metadata, "annotations": {**annotations_of(root_shard), FORGOTTEN: text}}}


def is_lost(records: tuple[ForgottenStore, ...], shard: str, workspace: Object) -> bool:
    """Whether a Workspace was scheduled to a shard before a store of that name was struck off."""
    moments = [parse_time(each.at) or 0.0 for each in records if each.shard == shard]
    return bool(moments) and _scheduled_s(workspace) <= max(moments)


def _scheduled_s(workspace: Object) -> float:
    condition = find(conditions_of(workspace), "WorkspaceScheduled") or {}
    since = condition.get("lastTransitionTime") or workspace["metadata"].get("creationTimestamp", "")
    return parse_time(str(since)) or 0.0
