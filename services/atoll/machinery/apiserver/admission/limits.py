"""Quotas and the limit of all objects, for dry runs: the last step of admission.

Every other write is charged and refused by the store, in the transaction of the write; a dry run has none, is charged
nothing, and is refused here by what the last commit left.
"""

from __future__ import annotations

import msgspec

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.apiserver.call import errors
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.types import EVENTS
from atoll.machinery.storage.contract import GateState
from atoll.machinery.storage.limits import BOOTSTRAP, Charges, Limit, WithinLimits


class DryRunLimits(Plugin):
    """Refuses a dry run of a write that a limit does not allow."""

    validates_plain_writes = False

    def validate(self, review: Review) -> None:
        if review.dry_run and review.operation != "delete":
            _check(review, review.call.key(review.name))


def _check(review: Review, key: ObjectKey) -> None:
    if key.type == EVENTS or (key.type, key.name) in BOOTSTRAP:
        return
    view = review.view
    if review.operation == "create" and view.gate(key.cluster).state is GateState.OPEN:
        total = view.total(key.cluster)
        if 0 < total.hard <= total.used:
            raise errors.over_limit(WithinLimits(key, (Limit("", "", total.hard, total.used),)))
    limits = view.limits(key.type, key.cluster, key.namespace)
    if limits:
        before = msgspec.json.encode(review.old) if review.old is not None else None
        refusal = Charges(key, before, msgspec.json.encode(review.obj)).refusal(limits)
        if refusal is not None:
            raise errors.over_limit(refusal)
