"""Create and update in stages, each a value: prepare → validate → admit → encode. `writing.commit` runs them.

    prepare   the new object: system metadata, pruning, defaults, field ownership, mutating admission
    validate  errors of metadata, schema and kind, and of rules, which may take long
    admit     rejection by those errors, validating admission, guards
    encode    mutation and answer, from the object in its stored version

Every create, update, patch and apply runs these stages, from any caller; `rest.delete` has its own. Admission's
changes belong to no field manager, as in Kubernetes. A write that changes nothing becomes a guard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from atoll.machinery.apiserver.admission.chain import Admission, Review
from atoll.machinery.apiserver.call.call import Answer, Call, Plan, View, look_up
from atoll.machinery.apiserver.call.options import WriteOptions
from atoll.machinery.apiserver.catalog.merge_types import reset_of, schemas_of, type_schema_of
from atoll.machinery.apiserver.rest import present
from atoll.machinery.apiserver.rest.answers import EncodedObject, ObjectAnswer, RecordAnswer
from atoll.machinery.apiserver.rest.body import cannot_be_handled
from atoll.machinery.apiserver.rest.metadata import bump_generation, stamp_cluster, strip_cluster
from atoll.machinery.apiserver.rest.normalization import normalize, normalize_new, normalize_update
from atoll.machinery.kinds.kind import Kind, ValidationResult, no_warnings
from atoll.machinery.kinds.metadata import validate_metadata, validate_metadata_update
from atoll.machinery.meta.missing_answer import MissingAnswer
from atoll.machinery.meta.objects import LARGE_BYTES, Object, fresh, splice
from atoll.machinery.meta.status import BadRequest, FieldError, invalid
from atoll.machinery.patch.managedfields.managers import Manager
from atoll.machinery.patch.managedfields.options import TrackOptions
from atoll.machinery.patch.managedfields.update import keep_timestamps, track_update
from atoll.machinery.process.time_slicing import checkpoint, require_slices
from atoll.machinery.storage.contract import Check, Delete, GateUnchanged, Guard, Mutation, NamespaceActive, Put, Record


class StoredObject(msgspec.Struct, frozen=True):
    """The object before a write: its record, and decoded in the call's version."""

    record: Record
    obj: Object

    def copied(self, kind: Kind) -> Object:
        """Return a deep copy of the object, except for `metadata.managedFields` of a small one.

        Large ones are decoded again, which takes half the time.
        """
        if len(self.record.value) > LARGE_BYTES:
            return present.as_object(kind, self.record.value)
        return fresh(self.obj)

    @property
    def is_deleting(self) -> bool:
        return bool(self.obj["metadata"].get("deletionTimestamp"))


class WriteContext(msgspec.Struct, frozen=True):
    """One write: the call, its view, the admission chain, and the client's options."""

    call: Call
    view: View
    admission: Admission
    options: WriteOptions


class PreparedWrite(msgspec.Struct, frozen=True):
    """A write after mutating admission. `old` is None for a create. `answer` replaces the ordinary one.

    `blind`: the client gave no resourceVersion, so that the write is planned again after a conflict.
    """

    context: WriteContext
    review: Review
    errors: list[FieldError]
    old: StoredObject | None = None
    blind: bool = True
    answer: Answer | None = None


def stored(call: Call, view: View, name: str) -> StoredObject | None:
    """Return the stored object by name, or None. A large one is planned in slices."""
    record = look_up(call, view, name)
    if record is None:
        return None
    if len(record.value) > LARGE_BYTES:
        require_slices()
    found = StoredObject(record, present.as_object(call.kind, record.value))
    checkpoint()
    return found


def own_fields(context: WriteContext, obj: Object, live: Object | None, subresource: str = "") -> None:
    """Attribute changed fields to the writer in metadata.managedFields."""
    kind = context.call.kind
    who = Manager(context.options.manager, "Update", kind.api_version, subresource)
    schemas = schemas_of(kind) if kind.versions else None
    options = TrackOptions(reset=reset_of(kind, subresource), convert=kind.convert, schemas=schemas)
    track_update(live, obj, who, type_schema_of(kind), context.call.now, options)


# --- prepare ---


def prepare_create(
    context: WriteContext,
    obj: Object,
    *,
    tracked: bool = False,
    has_generated_name: bool = False,
    is_plain: bool = False,
) -> PreparedWrite:
    """Prepare the creation of a decoded object. `tracked`: an apply already wrote its managed fields. `is_plain`: it is
    known to need defaults at most."""
    kind = context.call.kind
    normalize(context.call, obj, is_plain=is_plain)
    checkpoint()
    if not tracked:
        own_fields(context, obj, None)
    checkpoint()
    review = Review(
        call=context.call,
        group_resource=(kind.group, kind.plural),
        operation="create",
        obj=obj,
        old=None,
        view=context.view,
        dry_run=context.options.dry_run,
        has_generated_name=has_generated_name,
        settler=partial(normalize_new, context.call),
    )
    return _mutated(context, review, partial(_prepared_create, context))


def _prepared_create(context: WriteContext, review: Review) -> PreparedWrite:
    kind = context.call.kind
    assert review.obj is not None
    obj, schema = review.obj, kind.schema
    of_schema = schema.validate(obj) if schema is not None else ()
    errors = [*validate_metadata(obj, kind), *of_schema, *kind.validate(obj)]
    return PreparedWrite(context, review, errors)


def prepare_update(
    context: WriteContext,
    obj: Object,
    old: StoredObject,
    *,
    tracked: bool = False,
    blind: bool = True,
    is_plain: bool = False,
) -> PreparedWrite:
    """Prepare the change of a stored object to `obj`. `is_plain`: that is known to need defaults at most."""
    kind, subresource = context.call.kind, context.call.info.subresource
    before = dict(old.obj, metadata=dict(old.obj["metadata"]))
    strip_cluster(before)
    normalize(context.call, obj, before, is_plain=is_plain)
    checkpoint()
    if not tracked:
        own_fields(context, obj, before, subresource)
    checkpoint()
    review = Review(
        call=context.call,
        group_resource=(kind.group, kind.plural),
        operation="update",
        subresource=subresource,
        obj=obj,
        old=before,
        view=context.view,
        dry_run=context.options.dry_run,
        settler=partial(normalize_update, context.call, before),
    )
    return _mutated(context, review, partial(_prepared_update, context, old, blind))


def _prepared_update(context: WriteContext, old: StoredObject, blind: bool, review: Review) -> PreparedWrite:
    kind, subresource = context.call.kind, review.subresource
    assert review.obj is not None and review.old is not None
    obj, before, schema = review.obj, review.old, kind.schema
    if subresource in {"", "scale"} or subresource in kind.merges:
        bump_generation(kind, obj, before)
    errors = [
        *validate_metadata_update(obj, before, kind),
        *(schema.validate(obj, before) if schema is not None else ()),
        *(
            kind.validate_update(obj, before)
            if not subresource
            else subresource_errors(context.call, subresource, obj, before)
        ),
    ]
    return PreparedWrite(context, review, errors, old, blind)


def subresource_errors(call: Call, subresource: str, obj: Object, before: Object) -> list[FieldError]:
    """Return what a subresource of a kind does not take, beside its schema."""
    kind = call.kind
    if subresource == "status" and call.restrictions.is_data:
        # A report of another server, whose object may have been made anew: no change of what was said before.
        before = {**before, "status": {}}
    own = kind.subresource_checks.get(subresource)
    if own is not None:
        return own(obj, before)
    errors = kind.validate_update(obj, before)
    return [*errors, *kind.validate_status(obj, before)] if subresource == "status" else errors


def _mutated(
    context: WriteContext, review: Review, prepared: Callable[[Review], PreparedWrite], view: View | None = None
) -> PreparedWrite:
    """Run mutating admission, or its rest in a later view, and the last step of `prepare`.

    Raises Invalid or BadRequest where a plug-in fails at an object of wrong types: plug-ins come before the schema,
    which is not checked twice for that.
    """
    try:
        if view is None:
            context.admission.mutate(review)
        else:
            review.view = view
            context.admission.go_on(review)
    except MissingAnswer:
        attempt = context.call.attempt
        # What answers on /scale is made of the prepared write.
        if attempt is not None and review.pending is not None and review.subresource != "scale":
            attempt.rest = partial(_mutated, context, review, prepared)
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        schema = context.call.kind.schema
        if schema is not None and (errors := schema.validate(review.result, review.old)):
            _refuse_invalid(context.call, review.result, errors)
        raise
    return prepared(review)


# --- validate ---


def has_rules(prepared: PreparedWrite) -> bool:
    """Return whether there are checks that may take long: few kinds and policies have some."""
    return prepared.review.call.kind.deferred_validator is not None or bool(prepared.review.deferred_validators)


def validate(prepared: PreparedWrite, pause: Callable[[], None]) -> ValidationResult:
    """Return all errors and warnings. Slow rules call `pause`; validation may be run again."""
    if not has_rules(prepared):
        return ValidationResult(prepared.errors)
    review, own = prepared.review, prepared.review.call.kind.deferred_validator
    validators = [*([own] if own is not None else ()), *review.deferred_validators]
    assert review.obj is not None
    found = [validator(review.obj, review.old, prepared.errors, pause) for validator in validators]
    return ValidationResult(
        [*prepared.errors, *(error for each in found for error in each.errors)],
        [warning for each in found for warning in each.warnings],
    )


# --- admit ---


class AdmittedWrite(msgspec.Struct, frozen=True):
    """A write after admission, before encoding in the stored version. `guards` must hold when it is submitted."""

    prepared: PreparedWrite
    guards: tuple[Guard, ...]
    #: A failed conversion for the answer fails the write, which is not submitted yet.
    may_hide: bool = False

    @property
    def obj(self) -> Object:
        """The object in the call's version."""
        obj = self.prepared.review.obj
        assert obj is not None
        return obj

    @property
    def needs_conversion(self) -> bool:
        """Whether a webhook has to bring the object into its stored version, and back for the answer."""
        conversion = self.prepared.context.call.kind.conversion
        return conversion is not None and self.obj["apiVersion"] != conversion.storage

    def encode(self, stored_form: Object, served: Object | None = None) -> Plan:
        """Return the plan for the object in its stored version; `served` as a webhook made it for the answer."""
        prepared, call = self.prepared, self.prepared.context.call
        encoded, old = EncodedObject.of(stored_form, served), prepared.old
        if old is None:
            key = call.key(stored_form["metadata"]["name"])
            return self._plan(Put(key, encoded.value, encoded.hole, 0), ObjectAnswer(call, encoded, 201))
        record = old.record
        # A dry run answers with the current revision.
        answer = ObjectAnswer(call, encoded, 200, record.revision if prepared.context.options.dry_run else 0)
        if is_released(call.kind, self.obj):
            return self._plan(Delete(record.key, record.revision), answer)
        if splice(encoded.value, encoded.hole, record.revision) == record.value:
            return self._plan(Check(record.key, record.revision), RecordAnswer(call, record))
        return self._plan(Put(record.key, encoded.value, encoded.hole, record.revision), answer)

    def _plan(self, mutation: Mutation, answer: Answer) -> Plan:
        answer = self.prepared.answer or answer
        if self.prepared.context.options.dry_run:
            return Plan(answer=answer)
        mutations = (mutation, *self.prepared.review.writes)
        return Plan(mutations=mutations, guards=self.guards, answer=answer, blind=self.prepared.blind)


def admit(prepared: PreparedWrite, result: ValidationResult | None, view: View) -> AdmittedWrite:
    """Run validating admission on a valid object in the latest `view`. Raises Invalid, BadRequest, Forbidden.

    Without a result, go on with one that lacked answers of webhooks.
    """
    context, review = prepared.context, prepared.review
    call, obj = context.call, review.obj
    assert obj is not None
    if result is not None:
        call.warnings.extend(result.warnings)
        if result.errors:
            context.admission.leave(review)
            _refuse_invalid(call, obj, result.errors)
    review.view = view
    try:
        context.admission.validate(review)
    except MissingAnswer:
        if call.attempt is not None and review.questions:
            call.attempt.rest = partial(admit, prepared, None)
        raise
    if not review.subresource and call.kind.warnings is not no_warnings:
        call.warnings.extend(call.kind.warnings(obj))
    if review.old is not None:
        keep_timestamps(review.old, obj)
    stamp_cluster(obj, call.cluster)
    return AdmittedWrite(prepared, _guards(call, view, creates=prepared.old is None) + tuple(review.guards))


def is_released(kind: Kind, obj: Object) -> bool:
    """Whether an object under deletion has no finalizers left, and who runs it no time."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("deletionGracePeriodSeconds"):
        return False
    return not metadata.get("finalizers") and not kind.held(obj)


def _refuse_invalid(call: Call, obj: Object, errors: Sequence[FieldError]) -> None:
    """Raise 422, or 400 for a type error in the body of a built-in kind, which Kubernetes finds while decoding."""
    kind = call.kind
    if kind.builtin and call.info.verb in {"create", "update"}:
        wrong = next((error for error in errors if error.type == "FieldValueTypeInvalid"), None)
        if wrong is not None:
            raise BadRequest(f"{cannot_be_handled(kind)}: json: {wrong}")
    # The checks of metadata and the schema both find type errors of metadata: report each once.
    raise invalid(kind.group_kind, obj["metadata"].get("name", ""), list(dict.fromkeys(errors)))


def _guards(call: Call, view: View, *, creates: bool) -> tuple[Guard, ...]:
    """Return the guards of the write's transaction: the gate that admission saw, an active namespace."""
    guards: list[Guard] = []
    if not call.user.is_master:
        guards.append(GateUnchanged(call.cluster, view.gate(call.cluster).generation))
    if creates and call.kind.namespaced:
        guards.append(NamespaceActive(call.cluster, call.info.namespace))
    if call.fencing_token:
        guards.append(call.fence)
    return tuple(guards)
