"""The loopback client: controllers and bootstrap read and write through it, without HTTP.

Kinds, planning and admission are those of any request. Several writes that must land together are a `Batch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MappingProxyType

import msgspec

from atoll.machinery.apiserver.call.call import Call, Reply
from atoll.machinery.apiserver.call.options import DeleteOptions, WriteOptions
from atoll.machinery.apiserver.conversion import bare
from atoll.machinery.apiserver.rest.create import plan_create
from atoll.machinery.apiserver.rest.delete import plan_delete
from atoll.machinery.apiserver.rest.patch import APPLY, plan_patch
from atoll.machinery.apiserver.rest.update import plan_update
from atoll.machinery.apiserver.rest.write import PreparedWrite, WriteContext
from atoll.machinery.apiserver.writing.batch import LOST, Batch
from atoll.machinery.apiserver.writing.commit import WriteService
from atoll.machinery.apiserver.writing.target import Target, make_call
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode, encode_json
from atoll.machinery.meta.status import Conflict, NotFound
from atoll.machinery.process.retry import retry_on_conflict
from atoll.machinery.storage.contract import Flag, Record, Scope
from atoll.machinery.storage.pages import each_key_in_snapshots, each_record_in_snapshots


class Loopback:
    """Reads and single writes of the system. `manager` is the field manager of its writes."""

    def __init__(self, core: WriteService, manager: str) -> None:
        self.core, self.store, self.manager = core, core.store, manager
        self._options = WriteOptions(False, manager, "Ignore")

    def get(self, type: ResourceType, cluster: str, namespace: str, name: str) -> Object | None:
        """Return an object as stored, or None."""
        with self.core.store.snapshot() as snapshot:
            record = snapshot.get(ObjectKey(type, cluster, namespace, name))
        return decode(record.value) if record is not None else None

    def each(self, scope: Scope) -> Iterator[Object]:
        """Yield every object of a scope, page by page, each page in its own snapshot."""
        for record in self.records(scope):
            yield decode(record.value)

    def records(self, scope: Scope) -> Iterator[Record]:
        """Yield every record of a scope, undecoded, with its flags."""
        return each_record_in_snapshots(self.core.store, scope)

    def deleting(self, scope: Scope) -> Iterator[ObjectKey]:
        """Yield the keys of the objects of a scope under deletion."""
        return (record.key for record in self.records(scope) if record.flags & Flag.DELETING)

    def keys(self, scope: Scope) -> Iterator[ObjectKey]:
        """Yield the keys of a scope; the objects are not read."""
        return each_key_in_snapshots(self.core.store, scope)

    async def create(self, target: Target, obj: Object, *, whole: bool = False) -> Object:
        """Create an object. Raises AlreadyExists and the errors of admission."""
        call = make_call(target, "create", obj, self.manager, whole=whole)
        return await self._write(call, plan_create)

    async def update(self, target: Target, obj: Object, *, whole: bool = False) -> Object:
        """Replace an object or its subresource; obj carries the resourceVersion it was read at.

        `whole` writes status together with the rest.
        """
        return await self._write(make_call(target, "update", obj, self.manager, whole=whole), plan_update)

    async def try_update(self, target: Target, obj: Object, *, whole: bool = False) -> Object | None:
        """Like `update`, but return None where the object changed or vanished since it was read.

        That write has a log entry: it enqueues the key of a controller that watches the object.
        """
        try:
            return await self.update(target, obj, whole=whole)
        except (Conflict, NotFound):
            return None

    async def apply(self, target: Target, patch: Object, manager: str) -> Object:
        """Apply a document server-side as field manager `manager`, with force; fields that the manager applied before
        and that are not in the document are removed. Raises NotFound for a subresource of a missing object.
        """
        call = make_call(target, "patch", None, manager)
        query = MappingProxyType({"fieldManager": manager, "force": "true"})
        info = msgspec.structs.replace(call.info, query=query)
        call = msgspec.structs.replace(call, info=info, body=encode_json(patch), content_type=APPLY)
        options = WriteOptions(False, manager, "Ignore", force=True)
        reply = await self.core.commit(call, lambda call, view: plan_patch(self.core.context(call, view, options)))
        return _decoded(reply)

    async def delete(self, target: Target, options: DeleteOptions) -> None:
        """Delete an object; does nothing if it is gone."""
        # The reply is not used, so it needs no conversion.
        kind = bare(target.kind) if target.kind.conversion is not None else target.kind
        call = make_call(msgspec.structs.replace(target, kind=kind), "delete", None, self.manager)
        try:
            await self.core.commit(
                call, lambda call, view: plan_delete(self.core.context(call, view, self._options), target.name, options)
            )
        except NotFound:
            return

    async def _write(self, call: Call, plan: Callable[[WriteContext], PreparedWrite]) -> Object:
        reply = await self.core.commit(call, lambda call, view: plan(self.core.context(call, view, self._options)))
        return _decoded(reply)

    def batch(self) -> Batch:
        """Return a new batch at the latest state. Fill it within one loop turn, then await its `submit`."""
        return Batch(self.core, self.manager)

    async def submit(self, fill: Callable[[Batch], None]) -> None:
        """Submit what `fill` adds to a batch; after a conflict, what it adds at the newer state.

        Raises one of LOST after repeated conflicts.
        """

        async def attempt() -> None:
            batch = self.batch()
            batch.fill(fill)
            await batch.submit()

        await retry_on_conflict(attempt, *LOST)


def _decoded(reply: Reply) -> Object:
    return decode(reply.body if isinstance(reply.body, bytes) else b"".join(reply.body))
