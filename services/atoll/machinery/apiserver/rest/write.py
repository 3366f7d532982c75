"""What create, update, patch, apply and delete have in common: from a desired object to a Plan.

Order on every write, the same for every door: metadata kept from the stored object or stamped, the kind's own
preparation, pruning and defaulting, field ownership (what admission adds is nobody's, as in Kubernetes), mutating
admission, validation of metadata, schema and kind, validating admission, encoding. A write that changes nothing
becomes a precondition only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from atoll.machinery.apiserver.admission.chain import Admission, Review
from atoll.machinery.apiserver.call.call import Call, Pending, Plan, Reply, View, look_up
from atoll.machinery.apiserver.call.deferred_validation import Pause, Work, validated
from atoll.machinery.apiserver.call.options import WriteOptions
from atoll.machinery.apiserver.catalog.merge_types import reset_of, schemas_of, type_schema_of
from atoll.machinery.apiserver.conversion import bare
from atoll.machinery.apiserver.rest import present
from atoll.machinery.apiserver.rest.body import cannot_be_handled
from atoll.machinery.apiserver.rest.metadata import (
    bump_generation,
    stamp_cluster,
    strip_claims,
    strip_cluster,
    tidy_metadata,
)
from atoll.machinery.kinds.kind import Kind, Verdict
from atoll.machinery.kinds.metadata import (
    dedupe_owner_references,
    finalizer_warnings,
    validate_metadata,
    validate_metadata_update,
)
from atoll.machinery.meta.objects import Object, encode, splice
from atoll.machinery.meta.status import BadRequest, FieldError, invalid
from atoll.machinery.patch.managedfields.managers import Manager
from atoll.machinery.patch.managedfields.options import TrackOptions
from atoll.machinery.patch.managedfields.update import keep_timestamps, track_update
from atoll.machinery.storage.contract import Check, Delete, GateUnchanged, Guard, Mutation, NamespaceActive, Put, Record


class StoredObject(msgspec.Struct, frozen=True):
    """The object a write starts from: its record, and decoded in the call's version."""

    record: Record
    obj: Object

    @property
    def is_deleting(self) -> bool:
        return bool(self.obj["metadata"].get("deletionTimestamp"))


class WriteContext(msgspec.Struct, frozen=True):
    """One write being planned: who asks for what, what may be read, who must agree."""

    call: Call
    view: View
    admission: Admission
    options: WriteOptions


def stored(call: Call, view: View, name: str) -> StoredObject | None:
    """The stored object by name, or None."""
    record = look_up(call, view, name)
    return StoredObject(record, present.as_object(call.kind, record.value)) if record is not None else None


def own_fields(writing: WriteContext, obj: Object, live: Object | None, subresource: str = "") -> None:
    """Attribute what changed to the writer in metadata.managedFields."""
    kind = writing.call.kind
    who = Manager(writing.options.manager, "Update", kind.api_version, subresource)
    reset = reset_of(kind, subresource)
    options = TrackOptions(reset=reset, convert=kind.convert, schemas=schemas_of(kind))
    track_update(live, obj, who, type_schema_of(kind), writing.call.now, options)


def finish_create(writing: WriteContext, obj: Object, *, tracked: bool = False) -> Plan:
    """Plan the creation of a prepared object. `tracked`: an apply already wrote its managed fields."""
    call, kind = writing.call, writing.call.kind
    strip_cluster(obj)
    strip_claims(obj)
    tidy_metadata(obj)
    if kind.schema is not None:
        kind.schema.prune(obj)
        kind.schema.default(obj)
    call.warnings.extend([*dedupe_owner_references(obj), *finalizer_warnings(obj, kind)])
    if not tracked:
        own_fields(writing, obj, None)
    review = _review(writing, "create", obj, None)
    writing.admission.mutate(review)
    errors = [*validate_metadata(obj, kind), *_schema_errors(kind, obj, None), *kind.validate(obj)]

    def finish(verdict: Verdict, view: View) -> Plan:
        _admit(writing, review, verdict, view)
        call.warnings.extend(kind.warnings(obj))
        stamp_cluster(obj, call.cluster)
        key = call.key(obj["metadata"]["name"])
        guards = _guards(call, view, creates=True) + tuple(review.guards)

        def complete(stored_form: Object, shown: Object | None) -> Plan:
            encoded = encoded_with(stored_form, shown)
            return _plan(writing, Put(key, encoded.value, encoded.hole, 0), guards, encoded, 201)

        return outgoing(kind, obj, complete)

    return validated(_work(review, obj, errors), finish, writing.view)


def finish_update(
    writing: WriteContext,
    obj: Object,
    old: StoredObject,
    *,
    subresource: str = "",
    tracked: bool = False,
    blind: bool = True,
) -> Plan:
    """Plan the change of a stored object to `obj`; deletes it when that removes what held it."""
    call, kind = writing.call, writing.call.kind
    strip_cluster(obj)
    strip_claims(obj)
    tidy_metadata(obj)
    before = dict(old.obj, metadata=dict(old.obj["metadata"]))
    strip_cluster(before)
    if kind.schema is not None:
        kind.schema.prune(obj)
        kind.schema.default(obj)
    call.warnings.extend([*dedupe_owner_references(obj), *finalizer_warnings(obj, kind, before)])
    if not tracked:
        own_fields(writing, obj, before, subresource)
    review = _review(writing, "update", obj, before, subresource)
    writing.admission.mutate(review)
    if subresource in {"", "scale"}:
        bump_generation(kind, obj, before)
    errors = [
        *validate_metadata_update(obj, before, kind),
        *_schema_errors(kind, obj, before),
        *kind.validate_update(obj, before),
        *(kind.validate_status(obj, before) if subresource == "status" else ()),
    ]

    def finish(verdict: Verdict, view: View) -> Plan:
        _admit(writing, review, verdict, view)
        if not subresource:
            call.warnings.extend(kind.warnings(obj))
        keep_timestamps(before, obj)
        stamp_cluster(obj, call.cluster)
        guards = _guards(call, view, creates=False) + tuple(review.guards)

        def complete(stored_form: Object, shown: Object | None) -> Plan:
            encoded, record = encoded_with(stored_form, shown), old.record
            if is_released(kind, obj):
                return _plan(writing, Delete(record.key, record.revision), guards, encoded, blind=blind)
            if splice(encoded.value, encoded.hole, record.revision) == record.value:
                return _unchanged(writing, Check(record.key, record.revision), guards, record, blind)
            mutation = Put(record.key, encoded.value, encoded.hole, record.revision)
            return _plan(writing, mutation, guards, encoded, blind=blind)

        return outgoing(kind, obj, complete)

    return validated(_work(review, obj, errors), finish, writing.view)


def _work(review: Review, obj: Object, errors: list[FieldError]) -> Work | Verdict:
    """What is still to be validated, or the verdict of the checks so far where nothing is."""
    own = review.call.kind.judge
    judges = [*([own] if own is not None else ()), *review.judges]
    if not judges:
        return Verdict(errors, [])

    def work(pause: Pause) -> Verdict:
        found = [judge(obj, review.old, errors, pause) for judge in judges]
        return Verdict(
            [*errors, *(error for each in found for error in each.errors)],
            [warning for each in found for warning in each.warnings],
        )

    return work


def _admit(writing: WriteContext, review: Review, verdict: Verdict, view: View) -> None:
    """Refuse an object for what was found, else let validating admission see it."""
    call, obj = writing.call, review.obj
    assert obj is not None
    call.warnings.extend(verdict.warnings)
    _refuse_invalid(call, obj, verdict.errors)
    review.view = view
    writing.admission.validate(review)


def is_released(kind: Kind, obj: Object) -> bool:
    """Whether an object under deletion is held by nothing any more."""
    metadata = obj["metadata"]
    return bool(metadata.get("deletionTimestamp")) and not metadata.get("finalizers") and not kind.held(obj)


def _review(writing: WriteContext, operation: str, obj: Object, old: Object | None, subresource: str = "") -> Review:
    call = writing.call
    return Review(
        call=call,
        operation=operation,
        subresource=subresource,
        obj=obj,
        old=old,
        view=writing.view,
        dry_run=writing.options.dry_run,
    )


def _schema_errors(kind: Kind, obj: Object, old: Object | None) -> list[FieldError]:
    return kind.schema.validate(obj, old) if kind.schema is not None else []


def _refuse_invalid(call: Call, obj: Object, errors: Sequence[FieldError]) -> None:
    """Raise 422, or 400 for a type error in the body of a built-in kind, which Kubernetes finds while decoding."""
    kind = call.kind
    if kind.builtin and call.info.verb in {"create", "update"}:
        wrong = next((error for error in errors if error.type == "FieldValueTypeInvalid"), None)
        if wrong is not None:
            raise BadRequest(f"{cannot_be_handled(kind)}: json: {wrong}")
    if errors:
        # Metadata's types are validated with every kind's metadata and by the schema: told once.
        raise invalid(kind.group_kind, obj["metadata"].get("name", ""), list(dict.fromkeys(errors)))


def outgoing(kind: Kind, obj: Object, complete: Callable[[Object, Object | None], Plan]) -> Plan:
    """The end of a plan: the object in its stored version, at once where no webhook has to be asked for it."""
    if kind.conversion is not None and obj["apiVersion"] != kind.conversion.storage:
        return Plan(pending=Pending(obj=obj, complete=complete))
    return complete(kind.to_stored(obj) if kind.to_stored is not None else obj, None)


def _guards(call: Call, view: View, *, creates: bool) -> tuple[Guard, ...]:
    """What must still hold in the write's transaction: the gate that admission saw, an active namespace."""
    guards: list[Guard] = []
    if not call.user.is_master:
        guards.append(GateUnchanged(call.cluster, view.gate(call.cluster).generation))
    if creates and call.kind.namespaced:
        guards.append(NamespaceActive(call.cluster, call.info.namespace))
    return tuple(guards)


class EncodedObject(msgspec.Struct, frozen=True):
    """An object as it will be stored, and where its revision goes; `shown` where a webhook made what is answered."""

    value: bytes
    hole: int
    shown: EncodedObject | None = None

    def reply(self, call: Call, revision: int | None, status: int) -> Reply:
        """The answer with the object at a revision; None for one that was never stored."""
        kind = bare(call.kind) if self.shown is not None else call.kind
        form = self.shown or self
        if revision is None:
            value = _without_revision(form.value, form.hole)
        else:
            value = splice(form.value, form.hole, revision)
        return present.single(msgspec.structs.replace(call, kind=kind), value, status)


def encoded_with(stored_form: Object, shown: Object | None) -> EncodedObject:
    """An object encoded in its stored version, and in the request's if that is not made from the former."""
    return EncodedObject(*encode(stored_form), EncodedObject(*encode(shown)) if shown is not None else None)


def _plan(
    writing: WriteContext,
    mutation: Mutation,
    guards: tuple[Guard, ...],
    encoded: EncodedObject,
    status: int = 200,
    *,
    blind: bool = True,
) -> Plan:
    call = writing.call
    if writing.options.dry_run:
        expected = getattr(mutation, "expected", 0) or None
        return Plan(reply=lambda _: encoded.reply(call, expected, status))
    return Plan(
        mutations=(mutation,),
        guards=guards,
        reply=lambda revisions: encoded.reply(call, revisions[0], status),
        blind=blind,
    )


def _without_revision(value: bytes, hole: int) -> bytes:
    """The object of a dry-run create: it has no resourceVersion."""
    lead = b'"resourceVersion":"'
    start, end = hole - len(lead), hole + 17
    if value[start - 1 : start] == b",":
        return value[: start - 1] + value[end:]
    return value[:start] + value[end:].removeprefix(b",")


def _unchanged(writing: WriteContext, check: Check, guards: tuple[Guard, ...], record: Record, blind: bool) -> Plan:
    call = writing.call

    def reply(_: Sequence[int]) -> Reply:
        return present.single(call, record.value)

    if writing.options.dry_run:
        return Plan(mutations=(), reply=reply)
    return Plan(mutations=(check,), guards=guards, reply=reply, blind=blind)
