"""A write under review as rules, webhooks and policies see it."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from atoll.machinery.apiserver.admission.chain import Review
from atoll.machinery.apiserver.admission.configured.matching import CREATE, DELETE, UPDATE, Request
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.kinds.scales import scale_form
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.types import NAMESPACES

_OPERATIONS = {"create": CREATE, "update": UPDATE, "delete": DELETE}
#: Metadata that a new object gets after it was mutated.
_STAMPED = ("uid", "creationTimestamp", "generation")


def request_of(review: Review, equivalents: tuple[Kind, ...], *, named: bool = True) -> Request:
    """Return the request of a review, with its objects as they are now.

    On /scale they are Scales. Without `named` a new object is as it is before the server names and stamps it, for
    mutating webhooks and policies.
    """
    call = review.call
    kind, info = call.kind, call.info
    name, obj = info.name or review.name, review.obj
    if not named and obj is not None and review.operation == "create":
        obj = _unstamped(review, obj)
        name = "" if review.has_generated_name else name
    namespace = info.namespace if kind.namespaced else ""
    request = Request(
        operation=_OPERATIONS[review.operation],
        kind=kind,
        subresource=review.subresource,
        namespace=namespace,
        name=name,
        obj=_form_of(review, obj),
        old=_form_of(review, review.old),
        equivalents=equivalents,
    )
    if request.is_namespace:
        namespace = name
    return replace(request, namespace=namespace, namespace_object=partial(_namespace, review, namespace))


def _form_of(review: Review, obj: Object | None) -> Object | None:
    return scale_form(review.call.kind, obj) if obj is not None and review.subresource == "scale" else obj


def _unstamped(review: Review, obj: Object) -> Object:
    hidden = (*_STAMPED, "name") if review.has_generated_name else _STAMPED
    return {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key not in hidden}}


def _namespace(review: Review, name: str) -> Object | None:
    """Return a namespace in the view that the review has by then."""
    record = review.view.get(ObjectKey(NAMESPACES, review.call.cluster, "", name))
    return decode(record.value) if record is not None else None


def with_cluster(obj: Object | None, cluster: str) -> Object | None:
    """Return an object with the annotation of its cluster, which storage adds; the object itself is unchanged."""
    if obj is None:
        return None
    metadata = obj.get("metadata") or {}
    annotations = {**(metadata.get("annotations") or {}), wellknown.CLUSTER: cluster}
    return {**obj, "metadata": {**metadata, "annotations": annotations}}
