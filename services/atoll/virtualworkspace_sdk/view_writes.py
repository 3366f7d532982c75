"""Writes of rows, from the request to the reply: planned as those of any object, carried out by `writer`.

`server` gives it to the pipeline in place of the ordinary writing service, so that decoding, patches, apply, defaults,
validation, preconditions and dry runs are those of every kind. Invariant: no plan is stored; only its object is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from atoll.machinery.apiserver.authentication.oidc.issuer_keys import AuthenticationPending
from atoll.machinery.apiserver.call.attempt import Attempt
from atoll.machinery.apiserver.call.call import Call, Plan, Reply, View
from atoll.machinery.apiserver.rest import present
from atoll.machinery.apiserver.rest.delete import MarkedForDeletion
from atoll.machinery.apiserver.rest.write import AdmittedWrite
from atoll.machinery.apiserver.writing.commit import ATTEMPTS, Planner, WriteService
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.status import Conflict, InternalError
from atoll.machinery.process.backoff import Backoff
from atoll.virtualworkspace_sdk.view import Key, Write
from atoll.virtualworkspace_sdk.writer import Writer, written

BACKOFF = Backoff(0.02, 1.0, least=0.75)


class _Planned(msgspec.Struct, frozen=True):
    """A write, how it is answered without a row, and the client's options. `blind`: without a precondition."""

    write: Write
    plan: Plan
    blind: bool
    dry_run: bool


class ViewWriteService(WriteService, frozen=True, kw_only=True):
    """The writing service of a view's process."""

    writer: Writer

    def begin(self, call: Call, plan: Planner, view: View) -> Plan | None:
        """Return None: every write waits for a shard."""
        return None

    async def commit(
        self, call: Call, plan: Planner, recheck: Callable[[View], None] | None = None, tried: int = 0
    ) -> Reply:
        """As `WriteService.commit`, by changes of source objects. Raises the shard's errors too."""
        for attempt in range(ATTEMPTS):
            own = msgspec.structs.replace(call, warnings=[], audit={}, attempt=Attempt())
            planned = await self._planned_write(own, plan)
            try:
                reply = await self._carry_out(own, planned)
                call.warnings.extend(own.warnings)
                return reply
            except Conflict:
                if not planned.blind or attempt + 1 == ATTEMPTS:
                    raise
            await asyncio.sleep(BACKOFF.delay_s(attempt))
            if recheck is not None:
                await self._rechecked(recheck)
        raise AssertionError("the last attempt either answers or raises")

    async def _carry_out(self, call: Call, planned: _Planned) -> Reply:
        write = planned.write
        record = await self.writer.carry_out(call.kind, call.user, write, dry_run=planned.dry_run)
        if planned.dry_run or write.new is None:
            return planned.plan.answer.reply(())
        found = written(call.kind, write.key, record)
        return present.single(call, found.value, 201 if write.old is None else 200)

    async def _planned_write(self, call: Call, plan: Planner) -> _Planned:
        """Plan a write; raises the client's errors. An apply that creates may wait for a review."""
        for _ in range(ATTEMPTS):
            try:
                admitted = await self._admitted(call, plan)
            except AuthenticationPending as pending:
                await pending.complete()
                continue
            if isinstance(admitted, MarkedForDeletion):
                raise InternalError("a row has no finalizers")
            return self._deletion(call, admitted) if isinstance(admitted, Plan) else _change(call, admitted)
        raise InternalError("the write could not be authorized")

    def _deletion(self, call: Call, plan: Plan) -> _Planned:
        key = Key(call.cluster, call.info.namespace if call.kind.namespaced else "", call.info.name)
        record = self.writer.rows(call.kind.type).get(key)
        old: Object | None = decode(record.value) if record is not None else None
        write = Write(key=key, new=None, old=old, subresource=call.info.subresource)
        return _Planned(write, plan, plan.blind, not plan.mutations)

    async def _rechecked(self, recheck: Callable[[View], None]) -> None:
        for _ in range(ATTEMPTS):
            try:
                with self.store.snapshot() as snapshot:
                    recheck(snapshot)
            except AuthenticationPending as pending:
                await pending.complete()
            else:
                return


def _change(call: Call, admitted: AdmittedWrite) -> _Planned:
    prepared, metadata = admitted.prepared, admitted.obj["metadata"]
    key = Key(call.cluster, metadata.get("namespace", ""), metadata["name"])
    old = prepared.old.obj if prepared.old is not None else None
    write = Write(key=key, new=admitted.obj, old=old, subresource=call.info.subresource)
    return _Planned(write, admitted.encode(admitted.obj), prepared.blind, prepared.context.options.dry_run)
