"""Leases for leader election. Written often, by PUT, which also creates them.

An empty holder is valid: leaders of older client-go versions release a lease with it.
"""

from __future__ import annotations

from atoll.machinery.kinds.checks import invalid_values, mapping, number, text
from atoll.machinery.kinds.kind import Column, Kind
from atoll.machinery.kinds.native import AGE, NAME, age_cell, builtin, name_cell, row, text_cell
from atoll.machinery.meta.labels import label_key_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import forbidden, invalid, not_supported

_STRATEGY = "OldestEmulationVersion"


def _validate(obj: Object) -> list[FieldError]:
    spec, errors = mapping(obj, "spec"), []
    duration, transitions = number(spec, "leaseDurationSeconds"), number(spec, "leaseTransitions")
    if duration is not None and duration <= 0:
        errors.append(invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        detail = "must be greater than or equal to 0"
        errors.append(invalid("spec.leaseTransitions", transitions, detail))
    if text(spec, "preferredHolder") and not text(spec, "strategy"):
        errors.append(forbidden("spec.preferredHolder", "may only be specified if `strategy` is defined"))
    return errors + _strategy_errors(text(spec, "strategy"))


def _strategy_errors(strategy: str) -> list[FieldError]:
    """Kubernetes' own strategies are valid; other names need a domain."""
    if not strategy or strategy == _STRATEGY:
        return []
    if "/" not in strategy:
        return [not_supported("spec.strategy", strategy, (_STRATEGY,))]
    return invalid_values("spec.strategy", strategy, label_key_errors(strategy))


LEASES = Kind(
    **builtin("coordination.k8s.io", "Lease", "leases"),
    update_creates=True,
    columns=(NAME, Column("Holder", description="Who holds it."), AGE),
    cells=row(name_cell, text_cell("spec", "holderIdentity"), age_cell),
    validate=_validate,
    validate_update=lambda obj, old: _validate(obj),
)
