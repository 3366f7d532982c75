"""The variables of one request: the objects at once, the others when an expression first uses them.

Each policy and webhook that acts on the request evaluates on these; several share them where they see the same version
of the objects. Invariant: `authorizer` answers at once, by the state in which the write is planned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from atoll.machinery.apiserver.admission.chain import Review
from atoll.machinery.apiserver.admission.configured.equivalents import presented
from atoll.machinery.apiserver.admission.configured.matching import Request
from atoll.machinery.apiserver.admission.expressions.evaluation import Overlay
from atoll.machinery.apiserver.admission.expressions.request import admission_request
from atoll.machinery.apiserver.authorization.attributes import Attributes, Decision
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.cel.libraries.authorizer import (
    AuthorizationAttributes,
    AuthorizationResult,
    Authorizer,
    ResourceCheck,
)
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.objects import Object

#: Authorizes for admission, in the state in which the write is planned.
Authorize = Callable[[View, Attributes], Decision]
_HIDDEN = ("managedFields", "ownerReferences", "selfLink")


class RequestValues(dict[str, Any]):
    """The variables of a request, by name; a name without a value is a KeyError.

    The objects are presented in the version of `matched`. Raises Unconverted where that needs a conversion.
    """

    def __init__(self, review: Review, request: Request, matched: Kind, authorize: Authorize) -> None:
        obj, old = _presented(request, request.obj, matched), _presented(request, request.old, matched)
        super().__init__(object=obj, oldObject=old, params=None)
        self._review, self._request, self._matched, self._authorize = review, request, matched, authorize

    def __missing__(self, name: str) -> Any:
        value = self[name] = _MAKERS[name](self)
        return value

    def with_params(self, params: Object | None) -> Mapping[str, Any]:
        """Return the variables with a parameter of a policy."""
        return self if params is None else Overlay(self, {"params": params})

    def make_request(self) -> Object:
        return admission_request(self._review, self._request, self._matched)

    def make_namespace(self) -> Object | None:
        """Return the namespace of the object, without the fields that Kubernetes hides; None for cluster scope."""
        request = self._request
        namespace = request.namespace_object() if request.namespace and not request.is_namespace else None
        if namespace is None:
            return None
        metadata = {key: value for key, value in namespace["metadata"].items() if key not in _HIDDEN}
        return {**namespace, "metadata": metadata}

    def make_authorizer(self) -> Authorizer:
        return Authorizer(self._review.call.user, self._decide)

    def make_resource_check(self) -> ResourceCheck:
        request, kind = self._request, self._request.kind
        return ResourceCheck(
            self["authorizer"], kind.group, kind.plural, request.subresource, request.namespace, request.name
        )

    def _decide(self, attributes: AuthorizationAttributes) -> AuthorizationResult:
        asked = Attributes(
            user=attributes.user,
            verb=attributes.verb,
            cluster=self._review.call.cluster,
            group=attributes.group,
            version="*" if attributes.is_resource else "",
            resource=attributes.resource,
            subresource=attributes.subresource,
            namespace=attributes.namespace,
            name=attributes.name,
            path=attributes.path,
            field_selector=attributes.field_selector,
            label_selector=attributes.label_selector,
        )
        decision = self._authorize(self._review.view, asked)
        return AuthorizationResult(decision.allowed, decision.reason)


def _presented(request: Request, obj: Object | None, matched: Kind) -> Object | None:
    return None if obj is None else presented(request.kind, obj, matched, request.subresource)


_MAKERS: dict[str, Callable[[RequestValues], Any]] = {
    "request": RequestValues.make_request,
    "namespaceObject": RequestValues.make_namespace,
    "authorizer": RequestValues.make_authorizer,
    "authorizer.requestResource": RequestValues.make_resource_check,
}
