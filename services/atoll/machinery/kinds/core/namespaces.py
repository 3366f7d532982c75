"""Namespaces: phase, finalizers and the name label for selectors.

A DELETE only marks a namespace: the namespace controller empties it, and `spec.finalizers` delays its deletion until
`/finalize` removes the last of them.
"""

from __future__ import annotations

from atoll.machinery.kinds.checks import ensure, invalid_values, items, mapping, strings, text
from atoll.machinery.kinds.kind import Column, Kind, Subresource
from atoll.machinery.kinds.native import AGE, NAME, age_cell, builtin, name_cell, row, text_cell
from atoll.machinery.meta.labels import label_key_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import invalid

#: On every namespace, with its name as value; webhooks and policies select namespaces by it.
NAME_LABEL = "kubernetes.io/metadata.name"
#: The controller that empties the namespace.
FINALIZER = "kubernetes"
ACTIVE, TERMINATING = "Active", "Terminating"


def _prepare_create(obj: Object) -> None:
    _label(obj)
    ensure(obj, "status").setdefault("phase", ACTIVE)
    spec = ensure(obj, "spec")
    finalizers = items(spec, "finalizers")
    if FINALIZER not in finalizers:
        spec["finalizers"] = [*finalizers, FINALIZER]


def _prepare_update(obj: Object, old: Object) -> None:
    """Only /finalize changes spec.finalizers; a removed name label is restored."""
    _label(obj)
    if finalizers := items(old, "spec", "finalizers"):
        ensure(obj, "spec")["finalizers"] = finalizers
    else:
        mapping(obj, "spec").pop("finalizers", None)


def _label(obj: Object) -> None:
    labels = ensure(mapping(obj, "metadata"), "labels")
    labels[NAME_LABEL] = text(obj, "metadata", "name")


def _validate(obj: Object) -> list[FieldError]:
    errors = []
    for index, finalizer in enumerate(strings(obj, "spec", "finalizers")):
        field = f"spec.finalizers[{index}]"
        errors += invalid_values(field, finalizer, label_key_errors(finalizer))
        if "/" not in finalizer and finalizer != FINALIZER:
            detail = "name is neither a standard finalizer name nor is it fully qualified"
            errors.append(invalid(field, finalizer, detail))
    return errors


def _validate_update(obj: Object, old: Object) -> list[FieldError]:
    """The phase must match the deletion, in every write of the status."""
    is_deleting, phase = bool(mapping(obj, "metadata").get("deletionTimestamp")), text(obj, "status", "phase")
    if is_deleting and phase not in ("", TERMINATING):
        detail = "may only be 'Terminating' if `deletionTimestamp` is not empty"
    elif not is_deleting and phase not in ("", ACTIVE):
        detail = "may only be 'Active' if `deletionTimestamp` is empty"
    else:
        return _validate(obj)
    return [invalid("status.Phase", phase, detail), *_validate(obj)]


def _begin_deletion(obj: Object) -> None:
    ensure(obj, "status")["phase"] = TERMINATING


def _is_held(obj: Object) -> bool:
    return bool(items(obj, "spec", "finalizers"))


#: Namespaces are deleted one by one.
_VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")

NAMESPACES = Kind(
    **builtin("", "Namespace", "namespaces"),
    short_names=("ns",),
    namespaced=False,
    verbs=_VERBS,
    subresources=(
        Subresource("finalize", "Namespace", "", "v1", ("update",)),
        Subresource("status", "Namespace", "", "v1"),
    ),
    has_status=True,
    resets={"status": ("spec",), "finalize": ("status",)},
    unconditional_update=True,
    returns_deleted=True,
    name_rule="label",
    columns=(NAME, Column("Status", description="Whether the namespace is in use or going."), AGE),
    cells=row(name_cell, text_cell("status", "phase"), age_cell),
    field_labels={"status.phase": lambda obj: text(obj, "status", "phase")},
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    validate=_validate,
    validate_update=_validate_update,
    begin_deletion=_begin_deletion,
    held=_is_held,
)
