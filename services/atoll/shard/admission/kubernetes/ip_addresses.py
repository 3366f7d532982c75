"""IPAddresses that a Service holds: they go with it, not before.

kube-apiserver's repair writes such an object again; here it would be free for another Service, so it stays.
"""

from __future__ import annotations

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.apiserver.call import errors
from atoll.shard.admission.kubernetes.allocations import Allocations
from atoll.shard.admission.kubernetes.served import is_kubernetes_own, neighbour


class HeldAddresses(Plugin):
    """Rejects the deletion of an IPAddress, and another parent of it, while a Service holds it."""

    resources = (("networking.k8s.io", "ipaddresses"),)

    def validate(self, review: Review) -> None:
        if review.old is None or not is_kubernetes_own(review.call.kind):
            return
        records = Allocations(review.view, neighbour(review, "", "services"), review.call.cluster)
        service = records.holder(review.old)
        if service is None or (review.obj is not None and review.obj.get("spec") == review.old.get("spec")):
            return
        text = f"Service {service.namespace}/{service.name} has this address"
        raise errors.forbidden(review.call.kind, review.old["metadata"]["name"], text)
