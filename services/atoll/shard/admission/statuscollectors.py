"""Admission of StatusCollectors: their expressions must compile, and cost what a row may cost.

Compilation is slow, so it runs with the kind's own checks; an error names its field, as one of the schema does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.edge.names import GROUP
from atoll.machinery.kinds.kind import ValidationResult
from atoll.machinery.meta.names import CORE, LOCAL
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError


class StatusCollectors(Plugin):
    """Validates the StatusCollectors of an export; those of a definition of a tenant's own are the tenant's."""

    resources = ((GROUP, "statuscollectors"),)

    def mutate(self, review: Review) -> None:
        """Schedule the compilation."""
        if review.obj is not None and not review.subresource and review.call.kind.identity not in (CORE, LOCAL):
            review.deferred_validators.append(_compile)


def _compile(
    obj: Object, old: Object | None, errors: Sequence[FieldError], pause: Callable[[], None]
) -> ValidationResult:
    # What the schema refuses may have any form; what did not change was accepted.
    if errors or (old is not None and old.get("spec") == obj.get("spec")):
        return ValidationResult([], [])
    # A shard without StatusCollectors does not load the language.
    from atoll.machinery.edge.summaries.collectors import InvalidCollector, collector_of

    try:
        collector_of(obj, pause)
    except InvalidCollector as error:
        return ValidationResult(error.errors, [])
    return ValidationResult([], [])
