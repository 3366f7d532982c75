"""Namespace lifecycle: reject creations in missing or terminating namespaces, and deletion of protected ones.

As in Kubernetes it refuses before webhooks and policies are asked. The check during planning has the error message; the
guard in the write's transaction is authoritative.
"""

from __future__ import annotations

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.apiserver.call import errors
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.status import Details, NotFound
from atoll.machinery.meta.types import NAMESPACES
from atoll.machinery.storage.contract import Flag, GateState

# A plain integer: every create in a namespace asks, and arithmetic on an enum costs more.
_DELETING = Flag.DELETING.value
PROTECTED = ("default", "kube-system", "kube-public")


class NamespaceLifecycle(Plugin):
    """Rejects creations in missing or terminating namespaces and deletion of protected ones."""

    def mutate(self, review: Review) -> None:
        if review.operation == "create" and review.call.kind.namespaced:
            self._create(review)
        if review.operation == "delete" and review.call.kind.type == NAMESPACES:
            self._delete(review)

    def _create(self, review: Review) -> None:
        call = review.call
        namespace = call.info.namespace
        record = review.view.get(ObjectKey(NAMESPACES, call.cluster, "", namespace))
        if record is None:
            raise NotFound(f'namespaces "{namespace}" not found', Details(namespace, kind="namespaces"))
        if record.flags & _DELETING:
            prefix = review.result["metadata"]["generateName"] if review.has_generated_name else review.name
            raise errors.namespace_terminating(call.kind, call.info.name or prefix, namespace)

    def _delete(self, review: Review) -> None:
        call = review.call
        name = call.info.name
        going = review.view.gate(call.cluster).state in {GateState.DELETING, GateState.CLOSED}
        if name in PROTECTED and not going:
            raise errors.forbidden(call.kind, name, "this namespace may not be deleted")
