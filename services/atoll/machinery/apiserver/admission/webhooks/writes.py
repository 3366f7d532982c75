"""Admission of webhook configurations themselves: their match conditions compile.

Compilation is slow and runs with the kind's own checks. Expressions of the replaced configuration may use functions
that new ones may not, and a write that changes no condition checks none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.kinds.checks import objects, text
from atoll.machinery.kinds.kind import ValidationResult
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError

_GROUP = "admissionregistration.k8s.io"


class WebhookWrites(Plugin):
    """Checks writes of webhook configurations of both kinds."""

    resources = ((_GROUP, "mutatingwebhookconfigurations"), (_GROUP, "validatingwebhookconfigurations"))

    def mutate(self, review: Review) -> None:
        """Schedule the compilation of the conditions."""
        if review.obj is not None and _conditions(review.obj) != _conditions(review.old or {}):
            review.deferred_validators.append(_compile)


def _conditions(configuration: Object) -> list[object]:
    """Return the conditions of each webhook that has any, with its position."""
    found = ((index, webhook.get("matchConditions")) for index, webhook in objects(configuration, "webhooks"))
    return [each for each in found if each[1]]


def _compile(
    obj: Object, old: Object | None, errors: Sequence[FieldError], pause: Callable[[], None]
) -> ValidationResult:
    """Return the errors of all conditions; imports the language on first use."""
    from atoll.machinery.apiserver.admission.expressions.expression import Compiler
    from atoll.machinery.apiserver.admission.expressions.field_errors import condition_errors

    stored = {
        text(condition, "expression")
        for _, webhook in objects(old or {}, "webhooks")
        for _, condition in objects(webhook, "matchConditions")
    }
    compiler = Compiler(params=False, stored=stored, variables=False, pause=pause)
    found = list[FieldError]()
    for index, webhook in objects(obj, "webhooks"):
        found += condition_errors(webhook, compiler, f"webhooks[{index}].matchConditions")
    return ValidationResult(found, [])
