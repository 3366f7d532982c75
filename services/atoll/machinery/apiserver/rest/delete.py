"""DELETE: remove an object, or set its deletionTimestamp while finalizers or a grace period hold it."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from atoll.machinery.apiserver.admission.chain import Review
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Answer, Call, Plan
from atoll.machinery.apiserver.call.options import DeleteOptions, delete_options, delete_options_of
from atoll.machinery.apiserver.conversion import bare
from atoll.machinery.apiserver.rest.answers import DeletionStatusAnswer, EncodedObject, ObjectAnswer, RecordAnswer
from atoll.machinery.apiserver.rest.body import check_small, decode_document
from atoll.machinery.apiserver.rest.termination import Termination, is_as_short, termination
from atoll.machinery.apiserver.rest.write import StoredObject, WriteContext, stored
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.objects import Object, decode, encode_json, finalizers_of, splice
from atoll.machinery.process.time_slicing import checkpoint
from atoll.machinery.storage.contract import Check, Delete, GateUnchanged, Guard, Mutation, Put

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"


def read_options(call: Call) -> DeleteOptions:
    """Return delete options from the body, or from the query without one. Raises BadRequest, Invalid."""
    if not call.body:
        return delete_options(call.info.query)
    check_small(call)
    body, _ = decode_document(call.body, call.content_type, _OPTIONS, False)
    return delete_options_of(body, call.kind.api_version)


_OPTIONS = Kind(group="", version="v1", kind="DeleteOptions", plural="", singular="", builtin=True)


def plan_delete(context: WriteContext, name: str, options: DeleteOptions) -> Plan | MarkedForDeletion:
    """Plan the deletion of an object, or its start while something holds it. Raises NotFound, Conflict, Forbidden."""
    converted = context.call.kind
    if converted.conversion is not None:
        # Only metadata changes, which is the same in all versions: a failing webhook must not prevent the deletion.
        context = replace(context, call=replace(context.call, kind=bare(converted)))
    call = context.call
    old = stored(call, context.view, name)
    if old is None:
        raise errors.not_found(call.kind, name)
    _check_preconditions(call, name, old, options)
    if is_as_short(old.obj, options.grace_period_s):
        return Plan(answer=RecordAnswer(call, old.record, _begun_status(options)))
    review = Review(
        call=call,
        group_resource=(call.kind.group, call.kind.plural),
        operation="delete",
        obj=None,
        old=old.obj,
        view=context.view,
        dry_run=options.dry_run,
        delete_options=options,
    )
    context.admission.mutate(review)
    context.admission.validate(review)
    guards = (*_gate(context), *review.guards)
    obj = {**old.obj, "metadata": {**old.obj["metadata"]}}
    _mark_propagation(obj, options)
    is_held, end = bool(obj["metadata"].get("finalizers")) or call.kind.held(obj), None
    if is_held or call.kind.grace_period_s is not None:
        end = termination(call.kind, obj, options.grace_period_s, call.now)
    if not is_held and end is None:
        gone = Delete(old.record.key, old.record.revision)
        return _gone(context, old, (gone, *review.writes), guards, options)
    checkpoint()
    obj = decode(encode_json(obj))
    checkpoint()
    _mark(call, obj, old, end)
    return MarkedForDeletion(
        call,
        obj,
        old,
        guards,
        options,
        needs_conversion=converted.conversion is not None,
        goes=not is_held and end is not None and not end.period_s,
        writes=tuple(review.writes),
    )


def _gate(context: WriteContext) -> tuple[Guard, ...]:
    call = context.call
    fence = (call.fence,) if call.fencing_token else ()
    if call.user.is_master:
        return fence
    return (GateUnchanged(call.cluster, context.view.gate(call.cluster).generation), *fence)


def _check_preconditions(call: Call, name: str, old: StoredObject, options: DeleteOptions) -> None:
    uid, version = old.obj["metadata"]["uid"], str(old.record.revision)
    if options.uid and options.uid != uid:
        text = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({uid}). The object "
            "might have been deleted and then recreated"
        )
        raise errors.conflict(call.kind, name, text)
    if options.resource_version and options.resource_version != version:
        text = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the "
            f"ResourceVersion in record ({version}). The object might have been modified"
        )
        raise errors.conflict(call.kind, name, text)


def _mark_propagation(obj: Object, options: DeleteOptions) -> None:
    """Add or remove the finalizers for foreground and orphan propagation.

    Without a policy of the client, an existing propagation finalizer decides.
    """
    metadata = obj["metadata"]
    finalizers = [name for name in finalizers_of(obj) if name not in options.served_finalizers]
    if options.policy:
        finalizers = [name for name in finalizers if name not in {FOREGROUND, ORPHAN}]
    if options.policy == "Foreground":
        finalizers.append(FOREGROUND)
    elif options.policy == "Orphan":
        finalizers.append(ORPHAN)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)


def _gone(
    context: WriteContext,
    old: StoredObject,
    mutations: tuple[Mutation, ...],
    guards: tuple[Guard, ...],
    options: DeleteOptions,
) -> Plan:
    call, record = context.call, old.record
    answer = RecordAnswer(call, record) if call.kind.returns_deleted else DeletionStatusAnswer(call, old.obj)
    if options.dry_run:
        return Plan(answer=answer)
    return Plan(mutations=mutations, guards=guards, answer=answer, blind=not options.resource_version)


def _begun_status(options: DeleteOptions) -> int:
    """Return the HTTP status for an object that is still there."""
    return 202 if options.orphan is False else 200


def _mark(call: Call, obj: Object, old: StoredObject, end: Termination | None) -> None:
    """Begin the deletion of an object that stays for now; a second delete may shorten its time alone."""
    metadata = obj["metadata"]
    if end is not None:
        metadata["deletionTimestamp"] = end.at
        metadata["deletionGracePeriodSeconds"] = end.period_s
    if not old.is_deleting:
        if metadata.get("generation"):
            metadata["generation"] += 1
        call.kind.begin_deletion(obj)


class MarkedForDeletion(msgspec.Struct, frozen=True):
    """The admitted start of the deletion of an object that is held, before encoding in its stored version."""

    call: Call
    #: In its stored version where `needs_conversion`, else in the call's.
    obj: Object
    old: StoredObject
    guards: tuple[Guard, ...]
    options: DeleteOptions
    #: A webhook has to bring the object into the call's version for the answer.
    needs_conversion: bool
    #: The deletion begins even if the conversion fails; the answer is then a Status.
    may_hide: bool = True
    #: It goes at once, after watches have seen it marked; `writes` go with it.
    goes: bool = False
    writes: tuple[Mutation, ...] = ()

    def encode(self, stored_form: Object, served: Object | None = None) -> Plan:
        """Return the plan for the object in its stored version; `served` as a webhook made it, None if it could not."""
        encoded, record = EncodedObject.of(stored_form, served), self.old.record
        dry_run = self.options.dry_run
        unchanged = splice(encoded.value, encoded.hole, record.revision) == record.value
        answer: Answer = DeletionStatusAnswer(self.call, stored_form)
        if served is not None or not self.needs_conversion:
            status = 200 if self.goes else _begun_status(self.options)
            answer = ObjectAnswer(self.call, encoded, status, record.revision if dry_run or unchanged else 0)
        blind = not self.options.resource_version
        if dry_run:
            return Plan(answer=answer, guards=self.guards, blind=blind)
        if self.goes:
            gone = Delete(record.key, record.revision, encoded.value, encoded.hole)
            return Plan(mutations=(gone, *self.writes), guards=self.guards, answer=answer, blind=blind)
        mutation: Mutation = Put(record.key, encoded.value, encoded.hole, record.revision)
        if unchanged:
            mutation = Check(record.key, record.revision)
        return Plan(mutations=(mutation,), guards=self.guards, answer=answer, blind=blind)
