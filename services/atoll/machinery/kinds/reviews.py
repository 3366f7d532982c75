"""Kinds of reviews and token requests: created and answered in the response, never stored.

The authorizer and the token authenticator compute the status; this module checks the spec.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from atoll.machinery.kinds.checks import items, mapping, number, objects, text
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.kinds.native import builtin
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import forbidden, invalid, not_supported, required

AUTHENTICATION, AUTHORIZATION = "authentication.k8s.io", "authorization.k8s.io"
_CREATE = ("create",)

#: Lifetime of a token in seconds: the default and the bounds of a TokenRequest.
DEFAULT_TOKEN_S, SHORTEST_TOKEN_S, LONGEST_TOKEN_S = 3600, 600, 1 << 32
_BOUND_KINDS = ("Node", "Pod", "Secret")


def _reset_status(obj: Object) -> None:
    obj.pop("status", None)


# --- access reviews --------------------------------------------------------------------------------------


def _attribute_errors(spec: Object) -> Iterator[FieldError]:
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and other is not None:
        detail = "cannot be specified in combination with resourceAttributes"
        yield invalid("spec.nonResourceAttributes", other, detail)
    if resource is None and other is None:
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        yield invalid("spec.resourceAttributes", None, detail)
    for name in ("fieldSelector", "labelSelector"):
        selector = mapping(spec, "resourceAttributes").get(name)
        if isinstance(selector, dict):
            yield from _selector_errors(selector, f"spec.resourceAttributes.{name}")


def _selector_errors(selector: Object, field: str) -> Iterator[FieldError]:
    raw, requirements = text(selector, "rawSelector"), items(selector, "requirements")
    if raw and requirements:
        yield invalid(f"{field}.rawSelector", raw, "may not specified at the same time as requirements")
    if not raw and not requirements:
        detail = f"when {field} is specified, requirements or rawSelector is required"
        yield required(f"{field}.requirements", detail)
    for index, requirement in objects(selector, "requirements"):
        yield from _requirement_errors(requirement, f"{field}.requirements[{index}]")


def _requirement_errors(requirement: Object, field: str) -> Iterator[FieldError]:
    operator, values = text(requirement, "operator"), items(requirement, "values")
    if requirement.get("key") == "":
        yield required(f"{field}.key", "must be specified")
    if operator in ("In", "NotIn"):
        if not values:
            yield required(f"{field}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield forbidden(f"{field}.values", detail)
    elif "operator" in requirement:
        yield invalid(f"{field}.operator", operator, "not a valid selector operator")


def _validate_self(obj: Object) -> list[FieldError]:
    return list(_attribute_errors(mapping(obj, "spec")))


def _validate_subject(obj: Object) -> list[FieldError]:
    spec = mapping(obj, "spec")
    errors = list(_attribute_errors(spec))
    if not text(spec, "user") and not items(spec, "groups"):
        errors.append(invalid("spec.user", "", "at least one of user or group must be specified"))
    return errors


def _validate_local(obj: Object) -> list[FieldError]:
    errors = _validate_subject(obj)
    namespace = text(obj, "spec", "resourceAttributes", "namespace")
    if mapping(obj, "spec", "resourceAttributes") and namespace != text(obj, "metadata", "namespace"):
        errors.append(invalid("spec.resourceAttributes.namespace", namespace, "must match metadata.namespace"))
    if mapping(obj, "spec").get("nonResourceAttributes") is not None:
        detail = "disallowed on this kind of request"
        errors.append(invalid("spec.nonResourceAttributes", obj["spec"]["nonResourceAttributes"], detail))
    return errors


# --- tokens ----------------------------------------------------------------------------------------------


def _validate_token_review(obj: Object) -> list[FieldError]:
    return [] if text(obj, "spec", "token") else [required("spec.token")]


def _prepare_token_request(obj: Object) -> None:
    _reset_status(obj)
    if obj.get("spec") is None:
        obj["spec"] = {}
    if mapping(obj, "spec").get("audiences") is None:
        mapping(obj, "spec")["audiences"] = []


def _validate_token_request(obj: Object) -> list[FieldError]:
    errors, field = [], "spec.expirationSeconds"
    life_s = number(obj, "spec", "expirationSeconds")
    if life_s is not None and life_s < SHORTEST_TOKEN_S:
        errors.append(invalid(field, life_s, "may not specify a duration less than 10 minutes"))
    if life_s is not None and life_s > LONGEST_TOKEN_S:
        errors.append(invalid(field, life_s, "may not specify a duration larger than 2^32 seconds"))
    if isinstance(mapping(obj, "spec").get("boundObjectRef"), dict):
        kind = text(obj, "spec", "boundObjectRef", "kind")
        if kind not in _BOUND_KINDS:
            errors.append(not_supported("spec.boundObjectRef.kind", kind, _BOUND_KINDS))
    return errors


def _review(group: str, kind: str, validate: Callable[[Object], list[FieldError]], *, namespaced: bool = False) -> Kind:
    return Kind(
        **builtin(group, kind, kind.lower() + "s"),
        namespaced=namespaced,
        verbs=_CREATE,
        # A review needs no name, and any name is valid.
        name_rule="none",
        prepare_create=_reset_status,
        validate=validate,
    )


TOKENREVIEWS = _review(AUTHENTICATION, "TokenReview", _validate_token_review)
SELFSUBJECTREVIEWS = _review(AUTHENTICATION, "SelfSubjectReview", lambda obj: [])
SUBJECTACCESSREVIEWS = _review(AUTHORIZATION, "SubjectAccessReview", _validate_subject)
SELFSUBJECTACCESSREVIEWS = _review(AUTHORIZATION, "SelfSubjectAccessReview", _validate_self)
SELFSUBJECTRULESREVIEWS = _review(AUTHORIZATION, "SelfSubjectRulesReview", lambda obj: [])
LOCALSUBJECTACCESSREVIEWS = _review(AUTHORIZATION, "LocalSubjectAccessReview", _validate_local, namespaced=True)

#: Not a resource: request and response of `serviceaccounts/token`.
TOKENREQUEST = Kind(
    **builtin(AUTHENTICATION, "TokenRequest", "tokenrequests"),
    verbs=_CREATE,
    name_rule="none",
    prepare_create=_prepare_token_request,
    validate=_validate_token_request,
)
