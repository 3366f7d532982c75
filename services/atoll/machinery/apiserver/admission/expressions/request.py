"""The `request` of expressions: who does what to which object, as an AdmissionRequest without its objects.

Invariant: fields that are empty in Kubernetes are absent, so that `has()` tells the same.
"""

from __future__ import annotations

from collections.abc import Mapping

from atoll.machinery.apiserver.admission.chain import Review
from atoll.machinery.apiserver.admission.configured.matching import CREATE, DELETE, UPDATE, Request
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.user import User

_OPTIONS = {CREATE: "CreateOptions", UPDATE: "UpdateOptions", DELETE: "DeleteOptions"}
_OPTION_FIELDS = ("fieldManager", "fieldValidation")


def admission_request(review: Review, request: Request, matched: Kind) -> Object:
    """Return the request; `matched` is the kind in the version that the configuration matched."""
    subresource = request.subresource
    found: Object = {
        "kind": _group_version_kind(matched, subresource),
        "resource": _group_version_resource(matched),
        "requestKind": _group_version_kind(request.kind, subresource),
        "requestResource": _group_version_resource(request.kind),
        "operation": request.operation,
        "userInfo": user_info(review.call.user),
        "dryRun": review.dry_run,
        "options": _options(review, request.operation),
    }
    texts = {
        "subResource": subresource,
        "requestSubResource": subresource,
        "name": request.name,
        "namespace": request.namespace,
    }
    return {**found, **{field: text for field, text in texts.items() if text}}


def _group_version_kind(kind: Kind, subresource: str) -> Object:
    sub = kind.subresource(subresource) if subresource else None
    if sub is not None:
        return {"group": sub.group, "version": sub.version, "kind": sub.kind}
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _group_version_resource(kind: Kind) -> Object:
    return {"group": kind.group, "version": kind.version, "resource": kind.plural}


def user_info(user: User) -> Object:
    """Return a user as Kubernetes' UserInfo."""
    info: Object = {"username": user.name, "uid": user.uid, "groups": list(user.groups)}
    info["extra"] = {key: list(values) for key, values in (user.extra or {}).items()}
    return {field: value for field, value in info.items() if value}


def _options(review: Review, operation: str) -> Object:
    """Return the options of the operation, as far as the client gives them."""
    query: Mapping[str, str] = review.call.info.query
    options: Object = {"kind": _OPTIONS[operation], "apiVersion": "meta.k8s.io/v1"}
    if review.delete_options is not None:
        return options | review.delete_options.given()
    options |= {field: query[field] for field in _OPTION_FIELDS if query.get(field)}
    if review.dry_run:
        options["dryRun"] = ["All"]
    return options
