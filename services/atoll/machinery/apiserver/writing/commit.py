"""The writing service: plan a write against a snapshot, submit it, plan it again after a conflict.

Virtual workspaces and controllers write through `commit`; HTTP requests `begin` in their own snapshot, without a task,
and go on with `commit` where something has to be awaited. Invariant: no write bypasses admission.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias, TypeVar

import msgspec

from atoll.machinery.apiserver.admission.chain import Admission
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.attempt import Attempt, evaluated
from atoll.machinery.apiserver.call.call import Call, Plan, Reply, View
from atoll.machinery.apiserver.call.deferred_validation import validate_inline
from atoll.machinery.apiserver.call.in_slices import in_slices
from atoll.machinery.apiserver.call.options import WriteOptions, write_options
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.apiserver.conversion import Conversions, ConvertedObject
from atoll.machinery.apiserver.rest import scale
from atoll.machinery.apiserver.rest.create import plan_create
from atoll.machinery.apiserver.rest.delete import MarkedForDeletion, plan_delete, read_options
from atoll.machinery.apiserver.rest.patch import plan_patch
from atoll.machinery.apiserver.rest.update import plan_update
from atoll.machinery.apiserver.rest.write import AdmittedWrite, PreparedWrite, WriteContext, admit, has_rules, validate
from atoll.machinery.kinds.kind import ValidationResult
from atoll.machinery.meta.missing_answer import MissingAnswer
from atoll.machinery.meta.status import MethodNotAllowed, Timeout
from atoll.machinery.process.fair_turns import FairTurns
from atoll.machinery.process.relief import ask_for_relief
from atoll.machinery.process.shared_timeout import SharedTimeout
from atoll.machinery.process.time_slicing import Stopped, checkpoint, run_sliced, within_limit
from atoll.machinery.storage import contract
from atoll.machinery.storage.fencing import FencingToken
from atoll.machinery.storage.limits import WithinLimits

#: How often a write without a client's precondition is planned before its conflict is returned.
ATTEMPTS = 6
#: Bytes of a body from which on the write is planned in slices: JSON takes 5 ms until then, YAML 20.
LARGE_BODY = 16 * 1024
#: Time limit of planning on the loop; past it the write is planned again in slices.
PLAN_S = 0.02
SUBMIT_TIMEOUT_S = 34.0
#: Time limit for all answers that the plans of one write lack, such as those of webhooks; nothing is written before.
ANSWERS_TIMEOUT_S = 34.0
#: Time limit for the rules of one planning of a write, including the wait for other writes' rules.
VALIDATION_TIMEOUT_S = 34.0

#: The first stage of a write: a deletion is planned completely or lacks its stored form, other writes are prepared.
FirstStage: TypeAlias = Plan | MarkedForDeletion | PreparedWrite
#: The call is that of the planning: its kind may have conversions that the request's has not.
Planner = Callable[[Call, View], FirstStage]
#: A planning, or what is left of one that lacked an answer.
Stage: TypeAlias = Callable[[View], FirstStage | AdmittedWrite]
T = TypeVar("T")

_OPTION_KINDS = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}


class WriteService(msgspec.Struct, frozen=True):
    """The store, the catalogues and the admission chain of a server, which every handler shares."""

    store: contract.Store
    catalogs: Catalogs
    admission: Admission
    conversions: Conversions
    submit_limit: SharedTimeout = msgspec.field(default_factory=lambda: SharedTimeout(SUBMIT_TIMEOUT_S))
    #: Of writes that ask webhooks and go on with the answers, by logical cluster.
    turns: FairTurns = msgspec.field(default_factory=FairTurns)

    def planner(self, call: Call) -> Planner:
        """Return the planner of a mutating call. Raises MethodNotAllowed for a verb that the kind lacks."""
        verb, subresource = call.info.verb, call.info.subresource
        if verb == "delete" and not subresource:
            options = read_options(call)
            return lambda call, view: plan_delete(self.context(call, view, WriteOptions()), call.info.name, options)
        write = write_options(call.info.query, call.user_agent, _OPTION_KINDS.get(verb, "UpdateOptions"))
        plan: Callable[[WriteContext], PreparedWrite]
        if subresource == "scale":
            plan = scale.plan_scale
        elif verb in _PLANS and (verb != "create" or not subresource):
            plan = _PLANS[verb]
        else:
            raise MethodNotAllowed(f'{verb} is not supported on resources of kind "{call.kind.group_resource}"')
        return lambda call, view: plan(WriteContext(call, view, self.admission, write))

    def context(self, call: Call, view: View, options: WriteOptions) -> WriteContext:
        return WriteContext(call, view, self.admission, options)

    def first_attempt(self, call: Call) -> Call:
        """Return the call of a write to `begin`. Where something is configured that a plan may wait for, its plannings
        share an attempt."""
        configured = self.admission.configured
        if configured is None or configured.is_empty:
            return call
        return msgspec.structs.replace(call, attempt=Attempt())

    def begin(self, call: Call, plan: Planner, view: View) -> Plan | None:
        """Plan a write at once. None for one that takes long or has to wait: `commit` plans it, or goes on with it."""
        if call.kind.conversion is not None or len(call.body) > LARGE_BODY:
            return None
        if call.attempt is not None:
            return self._begin_attempt(call, call.attempt, plan, view)
        said = len(call.warnings)
        try:
            admitted = _admitted_on_loop(partial(plan, call), view)
        except (Stopped, MissingAnswer):
            _forget(call, said)
            return None
        return None if isinstance(admitted, PreparedWrite) else _encoded(call, admitted)

    def _begin_attempt(self, call: Call, attempt: Attempt, plan: Planner, view: View) -> Plan | None:
        """Plan at once what may lack answers. What that says is told once it has an end."""
        own = msgspec.structs.replace(call, warnings=attempt.warnings, audit=attempt.audit)
        try:
            admitted = _admitted_on_loop(partial(plan, own), view)
        except MissingAnswer as error:
            attempt.lacking = error
            return None
        except Stopped:
            return None
        except BaseException:
            _tell(attempt, call)
            raise
        if isinstance(admitted, PreparedWrite):
            return None
        _tell(attempt, call)
        return _encoded(own, admitted)

    async def commit(
        self, call: Call, plan: Planner, recheck: Callable[[View], None] | None = None, tried: int = 0
    ) -> Reply:
        """Plan and submit a write until it is durable; return the reply. `tried` attempts were made before.

        After a conflict of a blind plan, or a change of the gate, the write is authorized with `recheck` and planned
        again. Raises the client's errors, and Timeout past the request deadline (the outcome is then unknown).
        """
        converted = ConvertedObject.of(call.kind, self.conversions)
        kind, answered = call.kind if converted is None else converted.kind, AnswersDeadline()
        shared = call.attempt if call.attempt is not None and call.attempt.lacking is not None else Attempt()
        try:
            for attempt in range(tried, ATTEMPTS):
                if recheck is not None and attempt == max(tried, 1):
                    plan = _rechecked(plan, recheck)
                own = msgspec.structs.replace(
                    call, kind=kind, warnings=shared.warnings, audit=shared.audit, attempt=shared
                )
                planned = await self._planned(own, plan, answered)
                if not planned.mutations:
                    return planned.answer.reply(())
                try:
                    return planned.answer.reply(await self._submit(planned))
                except contract.StoreError as error:
                    require_another_attempt(call, planned, error, attempt)
                shared = Attempt()
        finally:
            _tell(shared, call)
        raise AssertionError("the last attempt either answers or raises")

    async def _planned(self, call: Call, plan: Planner, answered: AnswersDeadline) -> Plan:
        """Plan until no answer is missing: each time with one more at hand. Then convert the result if needed."""
        assert call.attempt is not None
        missing, call.attempt.lacking = call.attempt.lacking, None
        if missing is not None:
            await self.turns.take(call.cluster)
        while True:
            if missing is not None:
                await answered.within(missing.fetch())
                await self.turns.take(call.cluster)
            try:
                admitted = await self._admitted(call, plan)
                break
            except MissingAnswer as error:
                missing = error
        if isinstance(admitted, Plan) or not admitted.needs_conversion:
            return _encoded(call, admitted)
        to_forms = self.conversions.for_write(call.kind, admitted.obj, may_hide=admitted.may_hide)
        forms = await answered.within(to_forms)
        return admitted.encode(forms.stored_form, forms.served)

    async def _admitted(self, call: Call, plan: Planner) -> Plan | MarkedForDeletion | AdmittedWrite:
        """Prepare against the latest state, validate and admit, or go on with what lacked an answer.

        Slow rules run beside the loop, without a snapshot; the whole stage does for a large body or object, with its
        own.
        """
        attempt = call.attempt
        assert attempt is not None
        stage, attempt.rest = attempt.rest, None
        if stage is None:
            _forget(call)
            stage = partial(plan, call)
        if len(call.body) <= LARGE_BODY and not attempt.is_long:
            try:
                return await self._admitted_in_steps(stage)
            except Stopped:
                # What is stopped in the middle begins again.
                _forget(call)
                attempt.rest, attempt.is_long, stage = None, True, partial(plan, call)
        return await in_slices(partial(self._admitted_at_once, call, stage))

    async def _admitted_in_steps(self, stage: Stage) -> Plan | MarkedForDeletion | AdmittedWrite:
        """Raises Stopped if planning takes longer than PLAN_S."""
        with self.store.snapshot() as snapshot:
            admitted = _admitted_on_loop(stage, snapshot)
        if not isinstance(admitted, PreparedWrite):
            return admitted
        prepared = admitted
        try:
            result = await run_sliced(partial(validate, prepared), VALIDATION_TIMEOUT_S)
        except TimeoutError as error:
            raise _deadline_exceeded() from error
        with self.store.snapshot() as snapshot:
            return admit(prepared, result, snapshot)

    def _admitted_at_once(self, call: Call, stage: Stage) -> Plan | MarkedForDeletion | AdmittedWrite:
        with self.store.snapshot() as snapshot:
            prepared = stage(snapshot)
            admitted = (
                admit(prepared, validate(prepared, checkpoint), snapshot)
                if isinstance(prepared, PreparedWrite)
                else prepared
            )
        checkpoint()
        planned = admitted if isinstance(admitted, Plan) or admitted.needs_conversion else _encoded(call, admitted)
        # Freeing the decoded objects takes as long as encoding them.
        checkpoint()
        return planned

    async def _submit(self, plan: Plan) -> list[int]:
        try:
            with self.submit_limit.wait():
                return await self.store.queue(plan.mutations, plan.guards)
        except TimeoutError as error:
            raise outcome_unknown() from error


class AnswersDeadline(msgspec.Struct):
    """The time limit of all answers of one write, in seconds from the first one."""

    end_s: float = 0.0

    async def within(self, answer: Awaitable[T]) -> T:
        """Wait for the answer of somebody outside. Raises Timeout past the deadline."""
        ask_for_relief()
        loop = asyncio.get_running_loop()
        self.end_s = self.end_s or loop.time() + ANSWERS_TIMEOUT_S
        try:
            async with asyncio.timeout_at(self.end_s):
                return await answer
        except TimeoutError as error:
            raise _deadline_exceeded() from error


def _tell(attempt: Attempt, call: Call) -> None:
    """Tell the client and the audit log what the last planning of an attempt said."""
    call.warnings.extend(attempt.warnings)
    call.audit.update(attempt.audit)


def _forget(call: Call, said: int = 0) -> None:
    """Forget what an abandoned planning said after so many warnings."""
    del call.warnings[said:]
    call.audit.clear()


_PLANS: dict[str, Callable[[WriteContext], PreparedWrite]] = {
    "create": plan_create,
    "update": plan_update,
    "patch": plan_patch,
}


def _admitted_on_loop(stage: Stage, view: View) -> FirstStage | AdmittedWrite:
    """Prepare, validate and admit; a write whose rules take long is only prepared. Raises Stopped past PLAN_S."""
    prepared = within_limit(partial(stage, view), PLAN_S)
    if not isinstance(prepared, PreparedWrite):
        return prepared
    result = validate_inline(partial(validate, prepared)) if has_rules(prepared) else ValidationResult(prepared.errors)
    return prepared if result is None else admit(prepared, result, view)


def require_another_attempt(call: Call, plan: Plan, error: contract.StoreError, attempt: int) -> None:
    """Return if the store refused a plan that may be made again. Raises the client's error after the last `attempt`,
    for a precondition of the client's own, for a limit that is reached, and for a store that does not write."""
    conflict = isinstance(error, contract.RevisionConflict | contract.ObjectExists | contract.ObjectMissing)
    failed = isinstance(error, contract.GuardFailed) and not isinstance(error.guard, WithinLimits | FencingToken)
    again = failed or (conflict and (plan.blind or _is_of_another(plan, error)))
    if not again or attempt + 1 == ATTEMPTS:
        if conflict and _is_of_another(plan, error):
            raise errors.overtaken() from error
        raise errors.from_store(error, call, call.info.name) from error


def _is_of_another(plan: Plan, error: contract.StoreError) -> bool:
    """Whether a conflict is about an object that the system keeps beside the plan's own."""
    if not isinstance(error, contract.RevisionConflict | contract.ObjectExists | contract.ObjectMissing):
        return False
    return any(
        isinstance(each, contract.Put | contract.Delete) and each.key == error.key for each in plan.mutations[1:]
    )


def complete(stage: FirstStage, call: Call, view: View) -> Plan:
    """Run the stages after the first, of a write of a batch. Rules that take too long for the loop are postponed."""
    if isinstance(stage, PreparedWrite):
        result = evaluated(call.attempt, partial(validate, stage, checkpoint)) if has_rules(stage) else None
        return _encoded(call, admit(stage, result or ValidationResult(stage.errors), view))
    return _encoded(call, stage)


def _rechecked(plan: Planner, recheck: Callable[[View], None]) -> Planner:
    """Return the planner that authorizes the write in the state in which it plans."""

    def planner(call: Call, view: View) -> FirstStage:
        recheck(view)
        return plan(call, view)

    return planner


def _encoded(call: Call, admitted: Plan | MarkedForDeletion | AdmittedWrite) -> Plan:
    """Run the last stage for an object that needs no conversion."""
    if isinstance(admitted, Plan):
        return admitted
    assert call.kind.conversion is None or not admitted.needs_conversion, (
        "batches do not write objects that a webhook converts"
    )
    to_stored = call.kind.to_stored
    return admitted.encode(to_stored(admitted.obj) if to_stored is not None else admitted.obj)


def outcome_unknown() -> Timeout:
    """Return the error of a submit without an answer in time."""
    return Timeout("Timeout: request did not complete within requested timeout - outcome unknown")


def _deadline_exceeded() -> Timeout:
    return Timeout("Timeout: request did not complete within requested timeout - context deadline exceeded")
