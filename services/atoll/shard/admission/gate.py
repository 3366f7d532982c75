"""Admission by the state of a logical cluster; runs before every other plug-in.

`rest.write` and `rest.delete` check the same gate generation in the transaction, so a write is not stored once the
gate has changed after its admission. The authorizer checks user access (phase, verb `access`).
"""

from __future__ import annotations

from atoll.machinery.apiserver.admission.chain import Plugin, Review
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


class Gate(Plugin):
    """Rejects writes that the gate state does not allow; system:masters bypass it."""

    def validate(self, review: Review) -> None:
        call = review.call
        if call.user.is_master or review.group_resource == _OWN:
            return
        state = review.view.gate(call.cluster).state
        refused = _NO_WRITES.get(state) or (_NO_CREATES.get(state) if review.operation == "create" else None)
        if refused is not None:
            named = review.obj or review.old or {"metadata": {}}
            raise errors.forbidden(call.kind, str(named["metadata"].get("name", "")), refused)
