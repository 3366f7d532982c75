"""DELETE: remove an object, or set its deletionTimestamp while finalizers hold it."""

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
    """Plan the deletion of an object, or its start while finalizers hold it. Raises NotFound, Conflict, Forbidden."""
    converted = context.call.kind
    if converted.conversion is not None:
        # Only metadata changes, which is the same in all versions: a failing webhook must not prevent the deletion.
        context = replace(context, call=replace(context.call, kind=bare(converted)))
    call = context.call
    old = stored(call, context.view, name)
    if old is None:
        raise errors.not_found(call.kind, name)
    _check_preconditions(call, name, old, options)
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
    blind = not options.resource_version
    if not (obj["metadata"].get("finalizers") or call.kind.held(obj)):
        gone = Delete(old.record.key, old.record.revision)
        return _gone(context, old, (gone, *review.writes), guards, options)
    checkpoint()
    obj = decode(encode_json(obj))
    checkpoint()
    _mark(call, obj, old)
    return MarkedForDeletion(call, obj, old, guards, options, blind, needs_conversion=converted.conversion is not None)


def _gate(context: WriteContext) -> tuple[Guard, ...]:
    call = context.call
    if call.user.is_master:
        return ()
    return (GateUnchanged(call.cluster, context.view.gate(call.cluster).generation),)


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


def _mark(call: Call, obj: Object, old: StoredObject) -> None:
    """Begin the deletion of an object with finalizers; a second delete changes nothing."""
    metadata = obj["metadata"]
    if not old.is_deleting:
        metadata["deletionTimestamp"] = call.now
        metadata["deletionGracePeriodSeconds"] = 0
        if metadata.get("generation"):
            metadata["generation"] += 1
        call.kind.begin_deletion(obj)


class MarkedForDeletion(msgspec.Struct, frozen=True):
    """The admitted start of the deletion of an object with finalizers, before encoding in its stored version."""

    call: Call
    #: In its stored version where `needs_conversion`, else in the call's.
    obj: Object
    old: StoredObject
    guards: tuple[Guard, ...]
    options: DeleteOptions
    blind: bool
    #: A webhook has to bring the object into the call's version for the answer.
    needs_conversion: bool
    #: The deletion begins even if the conversion fails; the answer is then a Status.
    may_hide: bool = True

    def encode(self, stored_form: Object, served: Object | None = None) -> Plan:
        """Return the plan for the object in its stored version; `served` as a webhook made it, None if it could not."""
        encoded, record = EncodedObject.of(stored_form, served), self.old.record
        dry_run = self.options.dry_run
        unchanged = splice(encoded.value, encoded.hole, record.revision) == record.value
        answer: Answer = DeletionStatusAnswer(self.call, stored_form)
        if served is not None or not self.needs_conversion:
            status = 202 if self.options.orphan is False else 200
            answer = ObjectAnswer(self.call, encoded, status, record.revision if dry_run or unchanged else 0)
        if dry_run:
            return Plan(answer=answer, guards=self.guards, blind=self.blind)
        mutation: Mutation = Put(record.key, encoded.value, encoded.hole, record.revision)
        if unchanged:
            mutation = Check(record.key, record.revision)
        return Plan(mutations=(mutation,), guards=self.guards, answer=answer, blind=self.blind)
