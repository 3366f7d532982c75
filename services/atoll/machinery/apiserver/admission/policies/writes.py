"""Admission of policies and bindings themselves: their expressions compile, and the writer may read the parameters.

A policy reveals its parameters by what it denies, so whoever names a kind or an object of parameters must be able to
read it. Compilation is slow and runs with the kind's own checks. Invariant: a stored policy compiled when it was
written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.apiserver.admission.policies.parameters import resolve_kind
from atoll.machinery.apiserver.admission.policies.policy import ParamKind, param_kind
from atoll.machinery.apiserver.authorization.attributes import Attributes
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.kinds.checks import mapping, text
from atoll.machinery.kinds.kind import ValidationResult
from atoll.machinery.meta.names import CORE, ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.status import FieldError, Invalid, invalid
from atoll.machinery.meta.user import User
from atoll.machinery.schema.fielderrors import forbidden

GROUP = "admissionregistration.k8s.io"
POLICIES = ("validatingadmissionpolicies", "mutatingadmissionpolicies")
BINDINGS = {
    "validatingadmissionpolicybindings": "validatingadmissionpolicies",
    "mutatingadmissionpolicybindings": "mutatingadmissionpolicies",
}

May = Callable[[View, Attributes], bool]


class _Resource(msgspec.Struct, frozen=True):
    """The resource to read; `*` for what is unknown. `error` says why."""

    group: str = "*"
    version: str = "*"
    resource: str = "*"
    error: str = ""


class PolicyWrites(Plugin):
    """Checks writes of policies and bindings of both kinds."""

    resources = tuple((GROUP, plural) for plural in (*POLICIES, *BINDINGS))

    def __init__(self, catalogs: Catalogs, may: May) -> None:
        self._catalogs, self._may = catalogs, may

    def mutate(self, review: Review) -> None:
        """Schedule the compilation of a policy."""
        if review.obj is not None and not review.subresource and review.call.kind.plural in POLICIES:
            review.deferred_validators.append(_compile)

    def validate(self, review: Review) -> None:
        if review.obj is None or review.subresource or review.call.user.is_master:
            return
        spec, old = mapping(review.obj, "spec"), mapping(review.old, "spec")
        if review.call.kind.plural in POLICIES:
            if spec.get("paramKind") and spec.get("paramKind") != old.get("paramKind"):
                self._check_policy(review, spec)
        elif spec.get("paramRef") and not _same_reference(spec, old):
            self._check_binding(review, spec)

    def _check_policy(self, review: Review, spec: Object) -> None:
        kind = param_kind(spec)
        assert kind is not None
        found = self._resource(review, kind)
        if not self._may_read(review, found, "get", "*", "*"):
            param = mapping(spec, "paramKind")
            what = f"(kind={text(param, 'kind')}, apiVersion={text(param, 'apiVersion')})"
            user = _go_user(review.call.user)
            detail = f'user {user} must have "get" permission on all objects of the referenced paramKind {what}'
            raise _refusal(review, "spec.paramKind", detail)

    def _check_binding(self, review: Review, spec: Object) -> None:
        reference = mapping(spec, "paramRef")
        found = self._resource_of_policy(review, text(spec, "policyName"))
        name, verb = text(reference, "name"), "get" if text(reference, "name") else "list"
        if self._may_read(review, found, verb, text(reference, "namespace"), name):
            return
        user = f"user {_go_user(review.call.user)}"
        detail = f'{user} does not have "{verb}" permission on the object referenced by paramRef'
        if found.error:
            missing = f'{user} does not have "{verb}" permission for all groups, versions and resources'
            detail = f"unable to {found.error} to determine minimum required permissions and {missing}"
        raise _refusal(review, "spec.paramRef", detail)

    def _resource_of_policy(self, review: Review, policy: str) -> _Resource:
        """Return the resource of the parameters of a binding's policy; everything if it is unknown."""
        type = ResourceType(GROUP, BINDINGS[review.call.kind.plural], CORE)
        record = review.view.get(ObjectKey(type, review.call.cluster, "", policy))
        if record is None:
            return _Resource(error=f"get policy {policy}")
        spec = mapping(decode(record.value), "spec")
        kind = param_kind(spec)
        if kind is None:
            return _Resource()
        param = mapping(spec, "paramKind")
        found = self._resource(review, kind)
        if found.resource == "*":
            error = f"resolve paramKind &{{{text(param, 'apiVersion')} {text(param, 'kind')}}}"
            return _Resource(found.group, found.version, error=error)
        return found

    def _resource(self, review: Review, kind: ParamKind) -> _Resource:
        found = resolve_kind(self._catalogs.for_request(review.view, review.call.cluster), kind)
        return _Resource(kind.group, kind.version, "*" if found is None else found.plural)

    def _may_read(self, review: Review, found: _Resource, verb: str, namespace: str, name: str) -> bool:
        asked = Attributes(
            user=review.call.user,
            verb=verb,
            cluster=review.call.cluster,
            group=found.group,
            version=found.version,
            resource=found.resource,
            namespace=namespace,
            name=name,
        )
        return self._may(review.view, asked)


def _same_reference(spec: Object, old: Object) -> bool:
    return spec.get("paramRef") == old.get("paramRef") and spec.get("policyName") == old.get("policyName")


def _refusal(review: Review, field: str, detail: str) -> Invalid:
    return invalid(review.call.kind.group_kind, review.name, [forbidden(field, detail)])


def _go_user(user: User) -> str:
    """Return a user as Go prints its struct."""
    extra = " ".join(f"{key}:[{' '.join(values)}]" for key, values in sorted((user.extra or {}).items()))
    return f"&{{{user.name} {user.uid} [{' '.join(user.groups)}] map[{extra}]}}"


def _compile(
    obj: Object, old: Object | None, errors: Sequence[FieldError], pause: Callable[[], None]
) -> ValidationResult:
    """Return the errors of all expressions; imports the language on first use."""
    from atoll.machinery.apiserver.admission.policies.compile_errors import policy_errors

    return ValidationResult(policy_errors(mapping(obj, "spec"), mapping(old, "spec"), pause), [])
