"""Runs an object through the hooks and checks of its kind in the order in which a write runs them."""

from __future__ import annotations

import copy

from atoll.machinery.kinds.kind import Kind
from atoll.machinery.kinds.metadata import validate_metadata, validate_metadata_update
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError

NOW = "2026-01-02T03:04:05Z"


def sample(kind: Kind, **content: object) -> Object:
    """A minimal object of a kind, named `x`, in namespace `n` where the kind has namespaces."""
    metadata: Object = {"name": "x", "uid": "u", "creationTimestamp": NOW}
    if kind.namespaced:
        metadata["namespace"] = "n"
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **content}


def create(kind: Kind, obj: Object) -> tuple[Object, list[str]]:
    """The object that a create would store, and the texts of all errors."""
    obj = copy.deepcopy(obj)
    kind.prepare_create(obj)
    assert kind.schema is not None
    kind.schema.normalize(obj)
    errors = [*validate_metadata(obj, kind), *kind.schema.validate(obj), *kind.validate(obj)]
    return obj, _texts([*errors, *_rule_errors(kind, obj, None, errors)])


def update(kind: Kind, obj: Object, old: Object) -> tuple[Object, list[str]]:
    """The object that an update of `old` would store, and the texts of all errors."""
    obj, old = copy.deepcopy(obj), copy.deepcopy(old)
    kind.prepare_update(obj, old)
    assert kind.schema is not None
    kind.schema.normalize(obj)
    errors = [
        *validate_metadata_update(obj, old, kind),
        *kind.schema.validate(obj, old),
        *kind.validate_update(obj, old),
    ]
    return obj, _texts([*errors, *_rule_errors(kind, obj, old, errors)])


def _rule_errors(kind: Kind, obj: Object, old: Object | None, errors: list[FieldError]) -> list[FieldError]:
    return kind.deferred_validator(obj, old, errors, lambda: None).errors if kind.deferred_validator is not None else []


def accepted(kind: Kind, obj: Object) -> Object:
    """The object that a create stores; fails on any error."""
    stored, errors = create(kind, obj)
    assert errors == []
    return stored


def refused(kind: Kind, obj: Object) -> list[str]:
    """The errors of a create; fails if there is none."""
    _, errors = create(kind, obj)
    assert errors
    return errors


def _texts(errors: list[FieldError]) -> list[str]:
    return [str(error) for error in errors]
