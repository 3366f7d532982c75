"""Whether a review is about one of Kubernetes' own kinds, and reads of the others beside it.

A workspace serves them under the identity of root's export `kubernetes`, so an object's neighbours have its identity.
"""

from __future__ import annotations

from atoll.machinery.apiserver.admission.chain import Review
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.names import CORE, ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.storage.contract import Scope
from atoll.machinery.storage.pages import each_record


def is_kubernetes_own(kind: Kind) -> bool:
    """Whether a kind is bound and still the server's own, not a definition's."""
    return kind.builtin and kind.identity != CORE


def is_new(review: Review) -> bool:
    """Whether a review is about the creation of an object of such a kind."""
    return review.operation == "create" and not review.subresource and is_kubernetes_own(review.call.kind)


def is_written(review: Review) -> bool:
    """Whether a review is about a new or changed object of such a kind, not about a subresource."""
    return review.obj is not None and not review.subresource and is_kubernetes_own(review.call.kind)


def neighbour(review: Review, group: str, resource: str) -> ResourceType:
    """Return the type of another kind of the export."""
    return ResourceType(group, resource, review.call.kind.identity)


def named(review: Review, type: ResourceType, name: str, namespace: str = "") -> Object | None:
    """Return an object of the workspace, or None."""
    record = review.view.get(ObjectKey(type, review.call.cluster, namespace, name))
    return decode(record.value) if record is not None else None


def every(review: Review, type: ResourceType, namespace: str = "") -> list[Object]:
    """Return all objects of a type in the workspace, or in one of its namespaces, in the order of their names."""
    view, cluster = review.view, review.call.cluster
    if not view.last(type, cluster):
        return []
    return [decode(record.value) for record in each_record(view, Scope(type, cluster, namespace))]
