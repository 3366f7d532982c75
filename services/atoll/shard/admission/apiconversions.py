"""Admission of APIConversions: their rules must compile against the APIResourceSchema of the same name.

Implements kcp's plug-in apis.kcp.io/APIConversion. Compilation is slow, so it runs with the kind's own checks; errors
are returned with kcp's texts. Invariant: admitted rules compile as long as their schema exists, since a schema is
immutable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.apiserver.call.errors import forbidden
from atoll.machinery.kinds.apiconversion import Rules
from atoll.machinery.kinds.checks import mapping, text
from atoll.machinery.kinds.kind import DeferredValidator, ValidationResult
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.status import FieldError
from atoll.machinery.meta.types import API_RESOURCE_SCHEMAS

_OWN = ("apis.kcp.io", "apiconversions")


class ApiConversions(Plugin):
    """Validates APIConversions."""

    resources = (_OWN,)

    def mutate(self, review: Review) -> None:
        """Schedule the compilation of the rules if their schema exists."""
        if review.obj is None:
            return
        schema = _schema(review)
        if schema is not None:
            versions = {each["name"]: each["schema"] for each in schema["spec"]["versions"]}
            review.deferred_validators.append(_compilation(review, versions))

    def validate(self, review: Review) -> None:
        if review.obj is None:
            return
        name = review.obj["metadata"]["name"]
        if _schema(review) is None:
            found = f'error getting APIResourceSchema {name}: apiresourceschemas.apis.kcp.io "{name}" not found'
            raise forbidden(review.call.kind, name, found)


def _schema(review: Review) -> Object | None:
    """Return the APIResourceSchema with the name of the APIConversion, or None."""
    assert review.obj is not None
    name = text(review.obj, "metadata", "name")
    record = review.view.get(ObjectKey(API_RESOURCE_SCHEMAS, review.call.cluster, "", name)) if name else None
    return decode(record.value) if record is not None else None


def _compilation(review: Review, versions: dict[str, Object]) -> DeferredValidator:
    def validator(
        obj: Object, old: Object | None, errors: Sequence[FieldError], pause: Callable[[], None]
    ) -> ValidationResult:
        if errors:
            # Schema errors of the APIConversion itself are reported instead.
            return ValidationResult([], [])
        wrong = Rules(mapping(obj, "spec"), versions).errors(pause)
        if wrong:
            shown = "; ".join(map(str, wrong))
            name = obj["metadata"]["name"]
            raise forbidden(review.call.kind, name, f"error compiling conversion rules: {shown}")
        return ValidationResult([], [])

    return validator
