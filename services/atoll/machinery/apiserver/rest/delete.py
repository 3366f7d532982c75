"""DELETE: remove an object now, or mark it until whoever holds it lets go."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from atoll.machinery.apiserver.admission.chain import Review
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Call, Pending, Plan, Reply
from atoll.machinery.apiserver.call.negotiation import Form
from atoll.machinery.apiserver.call.options import DeleteOptions, delete_options
from atoll.machinery.apiserver.conversion import bare
from atoll.machinery.apiserver.rest import present
from atoll.machinery.apiserver.rest.body import decode_document
from atoll.machinery.apiserver.rest.write import EncodedObject, StoredObject, WriteContext, encoded_with, stored
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.objects import Object, decode, encode_json, splice
from atoll.machinery.meta.status import BadRequest
from atoll.machinery.storage.contract import Check, Delete, GateUnchanged, Guard, Put

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"


def read_options(call: Call) -> DeleteOptions:
    """Delete options from body or query. Raises BadRequest, Invalid."""
    body: Object | None = None
    if call.body:
        body, _ = decode_document(call.body, call.content_type, _OPTIONS, False)
        if body.get("kind", "DeleteOptions") != "DeleteOptions":
            raise BadRequest(f"the body of a delete must be DeleteOptions, not {body.get('kind')}")
    return delete_options(call.info.query, body)


_OPTIONS = Kind(group="", version="v1", kind="DeleteOptions", plural="", singular="", builtin=True)


def plan_delete(writing: WriteContext, name: str, options: DeleteOptions) -> Plan:
    """Plan the deletion of one object. Raises NotFound, Conflict, Forbidden."""
    converted = writing.call.kind
    if converted.conversion is not None:
        # Only metadata changes, which is alike in all versions: a webhook that is down must not keep objects alive.
        writing = replace(writing, call=replace(writing.call, kind=bare(converted)))
    call = writing.call
    old = stored(call, writing.view, name)
    if old is None:
        raise errors.not_found(call.kind, name)
    _check_preconditions(call, name, old, options)
    review = Review(call=call, operation="delete", obj=None, old=old.obj, view=writing.view, dry_run=options.dry_run)
    writing.admission.mutate(review)
    writing.admission.validate(review)
    guards = (*_gate(writing), *review.guards)
    obj = decode(encode_json(old.obj))
    _mark_propagation(obj, options)
    blind = not options.resource_version
    if not (obj["metadata"].get("finalizers") or call.kind.held(obj)):
        return _gone(writing, old, guards, options, blind)
    _mark(call, obj, old)
    marked = MarkedForDeletion(call, old, guards, options, blind)
    if converted.conversion is None:
        return marked.plan(call.kind.to_stored(obj) if call.kind.to_stored is not None else obj)
    return Plan(pending=Pending(obj=obj, is_stored=True, may_hide=True, complete=marked.plan_shown))


def _gate(writing: WriteContext) -> tuple[Guard, ...]:
    call = writing.call
    if call.user.is_master:
        return ()
    return (GateUnchanged(call.cluster, writing.view.gate(call.cluster).generation),)


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
    """Add or take the finalizers that stand for foreground and orphan propagation.

    A propagation finalizer already there is the default where the client names no policy.
    """
    metadata = obj["metadata"]
    finalizers = [name for name in metadata.get("finalizers") or [] if name not in options.served_finalizers]
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
    writing: WriteContext, old: StoredObject, guards: tuple[Guard, ...], options: DeleteOptions, blind: bool
) -> Plan:
    call = writing.call

    def reply(_: object) -> Reply:
        if call.kind.returns_deleted:
            return present.single(call, old.record.value)
        return present.document(present_plain(call), success(call, old.obj))

    if options.dry_run:
        return Plan(mutations=(), reply=reply)
    return Plan(mutations=(Delete(old.record.key, old.record.revision),), guards=guards, reply=reply, blind=blind)


def present_plain(call: Call) -> Form:
    """Status objects are never transformed; the media type stays."""
    return Form(call.form.media_type)


def success(call: Call, obj: Object) -> Object:
    """The Status of a deletion that is done."""
    metadata = obj["metadata"]
    details = {"name": metadata["name"], "group": call.kind.group, "kind": call.kind.plural, "uid": metadata["uid"]}
    if not call.kind.group:
        del details["group"]
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def _mark(call: Call, obj: Object, old: StoredObject) -> None:
    """Begin a deletion that something still holds; a second delete changes nothing."""
    metadata = obj["metadata"]
    if not old.is_deleting:
        metadata["deletionTimestamp"] = call.now
        metadata["deletionGracePeriodSeconds"] = 0
        if call.kind.generation:
            metadata["generation"] = metadata.get("generation", 0) + 1
        call.kind.begin_deletion(obj)


class MarkedForDeletion(msgspec.Struct, frozen=True):
    """The start of a deletion that something still holds: how it is written and answered."""

    call: Call
    old: StoredObject
    guards: tuple[Guard, ...]
    options: DeleteOptions
    blind: bool

    def plan(self, stored_form: Object) -> Plan:
        """The plan for an object in its stored version, which the call's kind can show."""
        encoded = encoded_with(stored_form, None)
        return self._plan(encoded, lambda revision: encoded.reply(self.call, revision, self._status))

    def plan_shown(self, stored_form: Object, shown: Object | None) -> Plan:
        """The plan for an object that a webhook brought into the request's version, or could not (None)."""
        encoded = encoded_with(stored_form, shown)
        if shown is not None:
            return self._plan(encoded, lambda revision: encoded.reply(self.call, revision, self._status))
        gone = success(self.call, stored_form)
        return self._plan(encoded, lambda _: present.document(present_plain(self.call), gone))

    @property
    def _status(self) -> int:
        return 202 if self.options.orphan_explicit else 200

    def _plan(self, encoded: EncodedObject, reply: Callable[[int], Reply]) -> Plan:
        record = self.old.record
        if self.options.dry_run or splice(encoded.value, encoded.hole, record.revision) == record.value:
            check = () if self.options.dry_run else (Check(record.key, record.revision),)
            return Plan(mutations=check, guards=self.guards, reply=lambda _: reply(record.revision), blind=self.blind)
        return Plan(
            mutations=(Put(record.key, encoded.value, encoded.hole, record.revision),),
            guards=self.guards,
            reply=lambda revisions: reply(revisions[0]),
            blind=self.blind,
        )
