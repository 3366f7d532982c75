"""Delete the content of a namespace, a cluster or a type: batches first, then the objects with finalizers.

Used by every controller whose object is removed only after its content. Work per call is bounded; remaining objects are
counted for status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from itertools import islice

import msgspec

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.apiserver.conversion import bare
from atoll.machinery.apiserver.writing.batch import Batch
from atoll.machinery.apiserver.writing.commit import WriteService
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import partial, wellknown
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.status import ApiError, NotFound
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.storage.contract import DeletePrefix, Flag, Record, Scope
from atoll.machinery.storage.pages import each_page_in_snapshots

BATCH, PAGE = 500, 200
#: When a deletion looks again at content that others hold; log entries of that content enqueue it too.
HELD = Backoff(5.0, 300.0)
#: The same after a concurrent write.
CONFLICT = Backoff(0.05, 10.0)
#: Deletions started in one batch; planning a batch blocks the event loop.
BATCH_SIZE = 10
#: Maximal number of held objects read per scope and call; the next call continues.
MAX_HELD = 2000
#: Refusals that a condition repeats, and characters of each.
MAX_REFUSALS, MAX_REFUSAL = 4, 512
#: Deletions that webhooks are asked about at the same time.
AT_ONCE = 16

_FINALIZERS, _DELETING = Flag.FINALIZERS.value, Flag.DELETING.value

#: Adds the start of an object's deletion to a batch. Raises NotFound for a deleted object.
Begin = Callable[[Batch, Target, Object], None]


class RemainingContent(msgspec.Struct):
    """Objects and finalizers that remain after a deletion, for conditions."""

    objects: dict[str, int] = {}
    finalizers: dict[str, int] = {}
    #: What webhooks and policies said against deletions, each text once; at most MAX_REFUSALS.
    refusals: list[str] = []

    @property
    def is_empty(self) -> bool:
        return not self.objects

    def message(self) -> str:
        """Return Kubernetes' message for the remaining objects."""
        objects = (f"{name} has {count} resource instances" for name, count in sorted(self.objects.items()))
        held = (f"{name} in {count} resource instances" for name, count in sorted(self.finalizers.items()))
        text = "Some resources are remaining: " + ", ".join(objects)
        if self.finalizers:
            text += "; Some content in the logical cluster has finalizers remaining: " + ", ".join(held)
        if self.refusals:
            text += "; Some deletions were refused: " + "; ".join(self.refusals)
        return text

    def refuse(self, error: ApiError) -> None:
        """Note the refusal of a deletion."""
        text = error.message[:MAX_REFUSAL]
        if text not in self.refusals and len(self.refusals) < MAX_REFUSALS:
            self.refusals.append(text)

    def add(self, type: ResourceType, finalizers: Sequence[str]) -> None:
        """Count an object and its finalizers."""
        # Kubernetes writes the dot for the core group too.
        name = f"{type.resource}.{type.group}"
        self.objects[name] = self.objects.get(name, 0) + 1
        for finalizer in finalizers:
            self.finalizers[finalizer] = self.finalizers.get(finalizer, 0) + 1


def stored_finalizers(record: Record) -> Sequence[str]:
    """Return the finalizers of an object; nothing else is decoded."""
    return partial.finalizers(record.value) if record.flags & _FINALIZERS else ()


async def clear(loopback: Loopback, scope: Scope, remaining: RemainingContent) -> None:
    """Delete the objects of a scope; count those kept by finalizers, or by a refusal, in `remaining`.

    Objects without finalizers are deleted in batches, with a log entry each; the others are marked once. Where webhooks
    or policies may act on the deletion, or who runs an object is given time, each is deleted by itself.
    """
    kind = _singly_deleted(loopback, scope)
    if kind is not None:
        await delete_reviewed(loopback, kind, scope, remaining)
        return
    while (await loopback.store.submit([DeletePrefix(scope, BATCH)]))[0] >= BATCH:
        continue
    await delete_held(loopback, scope, remaining)


def _singly_deleted(loopback: Loopback, scope: Scope) -> Kind | None:
    """Return the kind of a scope whose objects are deleted one by one."""
    with loopback.store.snapshot() as snapshot:
        kind = loopback.core.catalogs.of(snapshot, scope.cluster).of_type(scope.type)
        if kind is None or kind.grace_period_s is not None:
            return kind
        return kind if loopback.core.admission.reviews_deletions(snapshot, scope.cluster, kind) else None


def reviewed_kinds(core: WriteService, view: View, cluster: str, types: Collection[ResourceType]) -> dict[Scope, Kind]:
    """Return the types of a cluster whose deletions webhooks or policies may act on, with their kinds."""
    judged = dict[Scope, Kind]()
    if not core.admission.may_review_deletions(view, cluster, types):
        return judged
    for type in types:
        kind = core.catalogs.kind_of(view, cluster, type)
        if kind is not None and core.admission.reviews_deletions(view, cluster, kind):
            judged[Scope(type, cluster)] = kind
    return judged


async def delete_reviewed(loopback: Loopback, kind: Kind, scope: Scope, remaining: RemainingContent) -> None:
    """Delete the objects of a scope one by one, and count those that remain. What is refused is asked about again at
    the next call."""
    for records in islice(each_page_in_snapshots(loopback.store, scope), MAX_HELD // PAGE):
        asked = [record.key for record in records if not record.flags & _DELETING]
        for at in range(0, len(asked), AT_ONCE):
            some = asked[at : at + AT_ONCE]
            await asyncio.gather(*(_delete_reviewed(loopback, kind, key, remaining) for key in some))
        with loopback.store.snapshot() as snapshot:
            left = [found for record in records if (found := snapshot.get(record.key)) is not None]
        for record in left:
            remaining.add(scope.type, stored_finalizers(record))


async def _delete_reviewed(loopback: Loopback, kind: Kind, key: ObjectKey, remaining: RemainingContent) -> None:
    try:
        target = Target(kind, key.cluster, key.namespace, key.name)
        await loopback.delete(target, DeleteOptions(policy="Background"))
    except ApiError as error:
        remaining.refuse(error)


def delete(batch: Batch, target: Target, obj: Object) -> None:
    """Add the deletion of an ordinary object to a batch."""
    batch.delete(target, DeleteOptions(policy="Background"))


async def delete_held(loopback: Loopback, scope: Scope, remaining: RemainingContent, begin: Begin = delete) -> None:
    """Delete objects with finalizers once each, and count them. `begin` adds the start of a deletion to a batch."""
    for records in islice(each_page_in_snapshots(loopback.store, scope), MAX_HELD // PAGE):
        with loopback.store.snapshot() as snapshot:
            kind = loopback.core.catalogs.kind_of(snapshot, scope.cluster, scope.type)
        asked = []
        for record in records:
            remaining.add(scope.type, stored_finalizers(record))
            if not record.flags & _DELETING:
                asked.append(decode(record.value))
        if kind is not None:
            await _delete_each(loopback, bare(kind) if kind.conversion is not None else kind, asked, begin)


async def _delete_each(loopback: Loopback, kind: Kind, objects: list[Object], begin: Begin) -> None:
    """Begin deletions in batches; after a conflict, the objects of that batch one by one."""
    for at in range(0, len(objects), BATCH_SIZE):
        some, batch = objects[at : at + BATCH_SIZE], loopback.batch()
        for obj in some:
            with suppress(NotFound):
                begin(batch, _target(kind, obj), obj)
        if not await batch.try_submit():
            for obj in some:
                await loopback.delete(_target(kind, obj), DeleteOptions(policy="Background"))


def _target(kind: Kind, obj: Object) -> Target:
    metadata = obj["metadata"]
    return Target(kind, metadata["annotations"][wellknown.CLUSTER], metadata.get("namespace", ""), metadata["name"])
