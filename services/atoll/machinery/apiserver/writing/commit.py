"""What every door into the server shares: the store, the catalogues, the admission chain; and how writes commit.

HTTP requests, virtual workspaces and controllers all end in `commit`: plan against a snapshot, submit, plan
anew when another writer came first. There is no other way to write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from atoll.machinery.apiserver.admission.chain import Admission
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Call, Plan, Reply, View
from atoll.machinery.apiserver.call.deferred_validation import ValidationDeferred
from atoll.machinery.apiserver.call.options import WriteOptions, write_options
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.apiserver.conversion import Conversions, ConvertedObject
from atoll.machinery.apiserver.rest import scale
from atoll.machinery.apiserver.rest.create import plan_create
from atoll.machinery.apiserver.rest.delete import plan_delete, read_options
from atoll.machinery.apiserver.rest.patch import plan_patch
from atoll.machinery.apiserver.rest.update import plan_update
from atoll.machinery.apiserver.rest.write import WriteContext
from atoll.machinery.kinds.conversion import Unconverted
from atoll.machinery.meta.status import MethodNotAllowed, Timeout
from atoll.machinery.process.slices import run_sliced
from atoll.machinery.storage import contract

#: How often a write without a client's precondition is planned before its conflict is told.
ATTEMPTS = 6
SUBMIT_TIMEOUT_S = 34.0
#: How long the webhooks of one planning of a write may take together; nothing was written until then.
CONVERT_TIMEOUT_S = 34.0
#: How long rules may run for one planning of a write, waiting for others' included.
JUDGE_TIMEOUT_S = 34.0

#: The call is the one planned for: its kind may know more than that of the request.
Planner = Callable[[Call, View], Plan]

_OPTION_KINDS = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}


class WriteService(msgspec.Struct, frozen=True):
    """One shard's server without its doors."""

    store: contract.Store
    catalogs: Catalogs
    admission: Admission
    conversions: Conversions

    def planner(self, call: Call) -> Planner:
        """How a mutating call is planned. Raises MethodNotAllowed for what the kind does not do."""
        verb, subresource = call.info.verb, call.info.subresource
        if verb == "delete" and not subresource:
            options = read_options(call)
            return lambda call, view: plan_delete(self.writing(call, view, WriteOptions()), call.info.name, options)
        write = write_options(call.info.query, call.user_agent, _OPTION_KINDS.get(verb, "UpdateOptions"))
        plan: Callable[[WriteContext], Plan]
        if subresource == "scale":
            plan = scale.plan_scale
        elif verb in _PLANS and (verb != "create" or not subresource):
            plan = _PLANS[verb]
        else:
            raise MethodNotAllowed(f'{verb} is not supported on resources of kind "{call.kind.group_resource}"')
        return lambda call, view: plan(self.writing(call, view, write))

    def writing(self, call: Call, view: View, options: WriteOptions) -> WriteContext:
        return WriteContext(call, view, self.admission, options)

    async def commit(self, call: Call, plan: Planner, recheck: Callable[[View], None] | None = None) -> Reply:
        """Plan and submit until it is durable; gives the reply.

        A conflict of a blind plan, or a gate that moved, is planned anew; `recheck` authorizes again then. Raises
        the client's errors, and Timeout past the request deadline (the outcome is then unknown).
        """
        name = call.info.name
        known = ConvertedObject(call.kind, self.conversions) if call.kind.conversion is not None else None
        for attempt in range(ATTEMPTS):
            if known is not None:
                planned = await self._converted(call, plan, recheck if attempt else None, known)
            else:
                planned = await self._planned(call, plan, recheck if attempt else None)
            if not planned.mutations:
                return planned.reply(())
            try:
                return planned.reply(await self._submit(planned))
            except contract.GuardFailed as error:
                if attempt + 1 == ATTEMPTS:
                    raise errors.from_store(error, call, name) from error
            except (contract.RevisionConflict, contract.ObjectExists, contract.ObjectMissing) as error:
                if not planned.blind or attempt + 1 == ATTEMPTS:
                    raise errors.from_store(error, call, name) from error
            except contract.StoreError as error:
                raise errors.from_store(error, call, name) from error
        raise AssertionError("the last attempt either answers or raises")

    async def _planned(self, call: Call, plan: Planner, recheck: Callable[[View], None] | None) -> Plan:
        """A plan against the latest state. Where rules take their time, it is finished against a later one."""
        try:
            with self.store.snapshot() as snapshot:
                if recheck is not None:
                    recheck(snapshot)
                return plan(call, snapshot)
        except ValidationDeferred as error:
            slow = error
        try:
            verdict = await run_sliced(slow.work, JUDGE_TIMEOUT_S)
        except TimeoutError as error:
            text = "Timeout: request did not complete within requested timeout - context deadline exceeded"
            raise Timeout(text) from error
        with self.store.snapshot() as snapshot:
            return slow.resume(verdict, snapshot)

    async def _converted(
        self, call: Call, plan: Planner, recheck: Callable[[View], None] | None, known: ConvertedObject
    ) -> Plan:
        """A plan for a kind that a webhook converts: planned again for each object it lacks, then completed."""
        call = msgspec.structs.replace(call, kind=known.kind)
        try:
            async with asyncio.timeout(CONVERT_TIMEOUT_S):
                planned = await self._fetched(call, plan, recheck, known)
                if planned.pending is None:
                    return planned
                return await self.conversions.completed(call.kind, planned.pending)
        except TimeoutError as error:
            text = "Timeout: request did not complete within requested timeout - context deadline exceeded"
            raise Timeout(text) from error

    async def _fetched(
        self, call: Call, plan: Planner, recheck: Callable[[View], None] | None, known: ConvertedObject
    ) -> Plan:
        while True:
            try:
                return await self._planned(call, plan, recheck)
            except Unconverted as missing:
                lacking = missing
            await known.fetch(lacking)

    async def _submit(self, plan: Plan) -> list[int]:
        try:
            async with asyncio.timeout(SUBMIT_TIMEOUT_S):
                return await self.store.submit(plan.mutations, plan.guards)
        except TimeoutError as error:
            raise Timeout("Timeout: request did not complete within requested timeout - outcome unknown") from error


_PLANS: dict[str, Callable[[WriteContext], Plan]] = {"create": plan_create, "update": plan_update, "patch": plan_patch}
