"""APIExports and APIBindings served in v1alpha1 beside the stored v1alpha2.

`system_kinds` calls `served_in_both` for their definitions. An object written in v1alpha1 must be valid in both
versions: it is validated in v1alpha1, then converted and validated in v1alpha2. Invariant: no object is stored that a
write in v1alpha2 would have rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from atoll.machinery.kcp.apis.versions import V1ALPHA1, V1ALPHA2, convert, problems
from atoll.machinery.kcp.apis.versions.apibindings import keep_status_annotations
from atoll.machinery.kinds.conversion import Convert
from atoll.machinery.kinds.kind import DeferredValidator, Kind, ValidationResult
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError

_Hook = Callable[[Object], Object]


def served_in_both(kinds: Sequence[Kind]) -> list[Kind]:
    """Return the kinds of one definition, v1alpha2 and v1alpha1, with kcp's conversion."""
    stored = next(kind for kind in kinds if kind.api_version == V1ALPHA2)
    older = next(kind for kind in kinds if kind.api_version == V1ALPHA1)
    converting = _converting(stored)
    return [replace(stored, convert=converting), _older(older, stored, converting)]


def _converting(stored: Kind) -> Convert:
    finish = stored.convert
    assert finish is not None, "every kind of a definition has one"
    return lambda obj, api_version: finish(convert(obj, stored.kind, api_version), api_version)


def _older(kind: Kind, stored: Kind, converting: Convert) -> Kind:
    checks = _Checks(kind, stored, converting)
    return replace(
        kind,
        convert=converting,
        from_stored=_after_conversion(kind.from_stored, kind.kind, V1ALPHA1),
        to_stored=_after_conversion(kind.to_stored, kind.kind, V1ALPHA2),
        validate=checks.validate,
        validate_update=checks.validate_update,
        deferred_validator=checks.validate_deferred,
        prepare_update=keep_status_annotations if kind.kind == "APIBinding" else kind.prepare_update,
    )


def _after_conversion(finish: _Hook | None, kind: str, api_version: str) -> _Hook:
    assert finish is not None, "v1alpha1 is not the stored version"
    return lambda obj: finish(convert(obj, kind, api_version))


class _Checks:
    """Additional validation of an object of v1alpha1: it must be valid after conversion."""

    def __init__(self, kind: Kind, stored: Kind, converting: Convert) -> None:
        self._kind, self._stored, self._converting = kind, stored, converting

    def validate(self, obj: Object) -> list[FieldError]:
        return problems(obj, self._kind.kind) or self._stored_errors(obj, None)

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        return problems(obj, self._kind.kind) or self._stored_errors(obj, old)

    def _stored_errors(self, obj: Object, old: Object | None) -> list[FieldError]:
        schema = self._stored.schema
        assert schema is not None
        before = self._converting(old, V1ALPHA2) if old is not None else None
        return schema.validate(self._converting(obj, V1ALPHA2), before)

    def validate_deferred(
        self, obj: Object, old: Object | None, errors: Sequence[FieldError], pause: Callable[[], None]
    ) -> ValidationResult:
        """Apply the rules of v1alpha1, then those of v1alpha2 on the converted object."""
        found = _validated(self._kind.deferred_validator, obj, old, errors, pause)
        if errors or found.errors:
            return found
        before = self._converting(old, V1ALPHA2) if old is not None else None
        more = _validated(self._stored.deferred_validator, self._converting(obj, V1ALPHA2), before, errors, pause)
        return ValidationResult(more.errors, [*found.warnings, *more.warnings])


def _validated(
    validator: DeferredValidator | None,
    obj: Object,
    old: Object | None,
    errors: Sequence[FieldError],
    pause: Callable[[], None],
) -> ValidationResult:
    return validator(obj, old, errors, pause) if validator is not None else ValidationResult([], [])
