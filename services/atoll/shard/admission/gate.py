"""What the state of a logical cluster admits, before anything else is asked.

The generation that is judged here is nailed down by `rest.write` and `rest.delete` in the transaction: a write that
was admitted is not stored after the gate moved. The door for people (phase, `access`) is the authorizer's.
"""

from __future__ import annotations

from atoll.machinery.apiserver.admission.chain import Review, Validator
from atoll.machinery.apiserver.call import errors
from atoll.machinery.storage.contract import GateState

_OWN = ("core.kcp.io", "logicalclusters")
_NO_CREATES = {
    GateState.DELETING: "unable to create new content in the workspace because it is being deleted",
    GateState.CLOSED: "the logical cluster has no LogicalCluster object",
}
_NO_WRITES = {
    GateState.INACTIVE: "logical cluster is marked inactive",
    GateState.MOVING: "logical cluster is being migrated",
}


class Gate(Validator):
    """Refuses what the gate keeps out; system:masters pass."""

    def validate(self, review: Review) -> None:
        call = review.call
        if call.user.is_master or review.group_resource == _OWN:
            return
        state = review.view.gate(call.cluster).state
        refused = _NO_WRITES.get(state) or (_NO_CREATES.get(state) if review.operation == "create" else None)
        if refused is not None:
            named = review.obj or review.old or {"metadata": {}}
            raise errors.forbidden(call.kind, str(named["metadata"].get("name", "")), refused)
