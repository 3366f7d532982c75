"""`authorizer`: authorization checks from inside an expression.

The functions are part of `base`; only admission declares the variable. Its value is an Authorizer with a hook of the
caller, which must return at once: an evaluation does not wait. Each builder function returns a new value; only `check`
calls the hook.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Protocol

from atoll.machinery.cel.errors import EvaluationError
from atoll.machinery.cel.functions import Function, Library, Overload
from atoll.machinery.cel.libraries.kubernetes_value import KubernetesValue
from atoll.machinery.cel.libraries.values.formats import label_problems, subdomain_problems
from atoll.machinery.cel.types import BOOL, STRING, ObjectType, Type
from atoll.machinery.meta.user import User

AUTHORIZER: Final = ObjectType("kubernetes.authorization.Authorizer", {})
PATH_CHECK: Final = ObjectType("kubernetes.authorization.PathCheck", {})
GROUP_CHECK: Final = ObjectType("kubernetes.authorization.GroupCheck", {})
RESOURCE_CHECK: Final = ObjectType("kubernetes.authorization.ResourceCheck", {})
DECISION: Final = ObjectType("kubernetes.authorization.Decision", {})


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationAttributes:
    """A request to authorize: a verb on a path, or on resources of any version.

    Selectors are as written; one that does not parse does not narrow the request.
    """

    user: User
    verb: str
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: str = ""
    label_selector: str = ""

    @property
    def is_resource(self) -> bool:
        """Whether the request is for resources, not for a path."""
        return bool(self.resource)


@dataclass(frozen=True, slots=True)
class AuthorizationResult:
    """The result of the hook. A non-empty `error` means that the decision failed, whatever `allowed` is."""

    allowed: bool
    reason: str = ""
    error: str = ""


class AuthorizeHook(Protocol):
    """Decides whether a user is authorized; must not block."""

    def __call__(self, attributes: AuthorizationAttributes, /) -> AuthorizationResult:
        """Return the decision; failures are in `error` and not raised."""


@dataclass(frozen=True, slots=True, eq=False)
class Authorizer(KubernetesValue):
    """The value of the variable `authorizer`: the user, and the hook that decides."""

    user: User
    hook: AuthorizeHook
    cel_type: ClassVar[Type] = AUTHORIZER


@dataclass(frozen=True, slots=True, eq=False)
class PathCheck(KubernetesValue):
    """A path to check."""

    authorizer: Authorizer
    path: str
    cel_type: ClassVar[Type] = PATH_CHECK


@dataclass(frozen=True, slots=True, eq=False)
class GroupCheck(KubernetesValue):
    """An API group whose resource is not yet named."""

    authorizer: Authorizer
    group: str
    cel_type: ClassVar[Type] = GROUP_CHECK


@dataclass(frozen=True, slots=True, eq=False)
class ResourceCheck(KubernetesValue):
    """A resource to check; also the value of the variable `authorizer.requestResource`."""

    authorizer: Authorizer
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: str = ""
    label_selector: str = ""
    cel_type: ClassVar[Type] = RESOURCE_CHECK


@dataclass(frozen=True, slots=True, eq=False)
class Decision(KubernetesValue):
    """The result of a check."""

    result: AuthorizationResult
    cel_type: ClassVar[Type] = DECISION


def _path(value: Authorizer, path: str) -> PathCheck:
    if not path.strip():
        raise EvaluationError("path must not be empty")
    return PathCheck(value, path)


def _group(value: Authorizer, group: str) -> GroupCheck:
    return GroupCheck(value, group)


def _service_account(value: Authorizer, namespace: str, name: str) -> Authorizer:
    if subdomain_problems(name):
        raise EvaluationError("Invalid service account name")
    if label_problems(namespace):
        raise EvaluationError("Invalid service account namespace")
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    return replace(value, user=User(f"system:serviceaccount:{namespace}:{name}", groups))


def _resource(value: GroupCheck, resource: str) -> ResourceCheck:
    if not resource.strip():
        raise EvaluationError("resource must not be empty")
    return ResourceCheck(value.authorizer, value.group, resource)


def _check_path(value: PathCheck, verb: str) -> Decision:
    attributes = AuthorizationAttributes(user=value.authorizer.user, verb=verb, path=value.path)
    return Decision(value.authorizer.hook(attributes))


def _check_resource(value: ResourceCheck, verb: str) -> Decision:
    attributes = AuthorizationAttributes(
        user=value.authorizer.user,
        verb=verb,
        group=value.group,
        resource=value.resource,
        subresource=value.subresource,
        namespace=value.namespace,
        name=value.name,
        field_selector=value.field_selector,
        label_selector=value.label_selector,
    )
    return Decision(value.authorizer.hook(attributes))


def _restriction(name: str, identifier: str, restrict: Callable[[ResourceCheck, str], ResourceCheck]) -> Function:
    return _member(name, identifier, (RESOURCE_CHECK, STRING), RESOURCE_CHECK, restrict)


def _accessor(name: str, result: Type, read: Callable[[AuthorizationResult], object]) -> Function:
    def call(value: Decision) -> object:
        return read(value.result)

    return _member(name, f"decision_{name}", (DECISION,), result, call)


def _member(
    name: str, identifier: str, parameters: tuple[Type, ...], result: Type, call: Callable[..., Any]
) -> Function:
    return Function(name, (Overload(identifier, parameters, result, call, member=True),))


LIBRARY: Final = Library(
    "kubernetes.authz",
    (
        _member("path", "authorizer_path", (AUTHORIZER, STRING), PATH_CHECK, _path),
        _member("group", "authorizer_group", (AUTHORIZER, STRING), GROUP_CHECK, _group),
        _member(
            "serviceAccount", "authorizer_serviceaccount", (AUTHORIZER, STRING, STRING), AUTHORIZER, _service_account
        ),
        _member("resource", "groupcheck_resource", (GROUP_CHECK, STRING), RESOURCE_CHECK, _resource),
        _restriction("subresource", "resourcecheck_subresource", lambda check, text: replace(check, subresource=text)),
        _restriction("namespace", "resourcecheck_namespace", lambda check, text: replace(check, namespace=text)),
        _restriction("name", "resourcecheck_name", lambda check, text: replace(check, name=text)),
        Function(
            "check",
            (
                Overload("pathcheck_check", (PATH_CHECK, STRING), DECISION, _check_path, member=True),
                Overload("resourcecheck_check", (RESOURCE_CHECK, STRING), DECISION, _check_resource, member=True),
            ),
        ),
        _accessor("allowed", BOOL, lambda result: result.allowed),
        _accessor("reason", STRING, lambda result: result.reason),
        _accessor("errored", BOOL, lambda result: bool(result.error)),
        _accessor("error", STRING, lambda result: result.error),
    ),
)

SELECTORS: Final = Library(
    "kubernetes.authzSelectors",
    (
        _restriction(
            "fieldSelector", "authorizer_fieldselector", lambda check, text: replace(check, field_selector=text)
        ),
        _restriction(
            "labelSelector", "authorizer_labelselector", lambda check, text: replace(check, label_selector=text)
        ),
    ),
)
