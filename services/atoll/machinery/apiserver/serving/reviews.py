"""SubjectAccessReviews, TokenReviews and SelfSubjectReviews: created, answered in the reply, never stored.

`resources` passes a review here after its create is authorized; the authorizer and the token sources answer it. The
kind validates its fields (`kinds.reviews`). Invariant: scopes and warrants count in every answer, because the
authorizer is called as for a request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from atoll.machinery.apiserver.authentication.authenticator import BearerTokens
from atoll.machinery.apiserver.authorization.attributes import Attributes
from atoll.machinery.apiserver.authorization.authorizer import Authorizer
from atoll.machinery.apiserver.authorization.effective_users import effective_users
from atoll.machinery.apiserver.authorization.rbac import Rule
from atoll.machinery.apiserver.authorization.refusal import ACCESS_DENIED
from atoll.machinery.apiserver.call.call import Call, View
from atoll.machinery.apiserver.call.preferences import DEEP_HEADER
from atoll.machinery.meta.names import SYSTEM_ADMIN
from atoll.machinery.meta.objects import Object, spec_of
from atoll.machinery.meta.status import BadRequest, Unauthorized, invalid
from atoll.machinery.meta.user import User
from atoll.machinery.wire.exchange import HttpRequest

#: Each is checked separately.
MAX_AUDIENCES = 100


def is_deep(request: HttpRequest, user: User) -> bool:
    """Whether a SubjectAccessReview skips the check for access to the workspace. Only system:masters can."""
    return user.is_master and request.header(DEEP_HEADER) == "true"


class _Selector(msgspec.Struct, frozen=True, rename="camel"):
    raw_selector: str = ""


class _Resource(msgspec.Struct, frozen=True, rename="camel"):
    namespace: str = ""
    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    field_selector: _Selector | None = None
    label_selector: _Selector | None = None


class _NonResource(msgspec.Struct, frozen=True):
    path: str = ""
    verb: str = ""


class _AccessSpec(msgspec.Struct, frozen=True, rename="camel"):
    resource_attributes: _Resource | None = None
    non_resource_attributes: _NonResource | None = None
    user: str = ""
    groups: tuple[str, ...] | None = None
    uid: str = ""
    extra: dict[str, tuple[str, ...]] | None = None


class _RulesSpec(msgspec.Struct, frozen=True):
    namespace: str = ""


class _TokenSpec(msgspec.Struct, frozen=True):
    token: str = ""
    audiences: tuple[str, ...] | None = None


class Question(msgspec.Struct, frozen=True):
    """A review, its call and the state it is answered from."""

    call: Call
    obj: Object
    snapshot: View
    deep: bool


class Reviews:
    """Answers reviews."""

    def __init__(self, authorizer: Authorizer, bearers: BearerTokens) -> None:
        self._authorizer, self._bearers = authorizer, bearers
        self._answers: Mapping[str, Callable[[Question], Object]] = {
            "TokenReview": self._token,
            "SelfSubjectReview": self._self,
            "SubjectAccessReview": self._access,
            "LocalSubjectAccessReview": self._local_access,
            "SelfSubjectAccessReview": self._self_access,
            "SelfSubjectRulesReview": self._rules,
        }

    def review(self, call: Call, obj: Object, snapshot: View, *, deep: bool = False) -> Object:
        """Return the review with its status.

        `deep` must come from `is_deep`. Raises Invalid and BadRequest for a malformed review; a denial is an
        ordinary answer.
        """
        kind = call.kind
        _check_metadata(call, obj)
        if errors := kind.validate(obj):
            raise invalid(kind.group_kind, "", errors)
        status = self._answers[kind.kind](Question(call, obj, snapshot, deep))
        metadata = {"creationTimestamp": None, **(obj.get("metadata") or {})}
        answered = {**obj, "kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        return {**answered, "status": status}

    # --- authentication ---

    def _token(self, question: Question) -> Object:
        spec = _spec(question.obj, _TokenSpec)
        if not spec.token:
            raise BadRequest("token is required for TokenReview in authentication")
        wanted = spec.audiences or self._bearers.audiences
        if len(wanted) > MAX_AUDIENCES:
            raise BadRequest(f"a TokenReview asks for at most {MAX_AUDIENCES} audiences")
        user = self._user_of(question, spec.token, wanted)
        if user is None:
            return {"user": {}, "error": "invalid bearer token"}
        # The requested audiences that the token is valid for; the client checks that its own is among them.
        good = [audience for audience in wanted if self._user_of(question, spec.token, (audience,)) is not None]
        return {"authenticated": True, "user": user_info(user), "audiences": good}

    def _user_of(self, question: Question, token: str, audiences: tuple[str, ...]) -> User | None:
        try:
            return self._bearers.user_of(token, question.snapshot, question.call.cluster, audiences)
        except Unauthorized:
            return None

    def _self(self, question: Question) -> Object:
        """Answer with the caller's effective user, which differs from its own out of its scope."""
        user = question.call.user
        who = effective_users(user, question.call.cluster)
        shown = user if who.in_scope else User(who.own.name, who.own.groups)
        return {"userInfo": user_info(shown)}

    # --- authorization ---

    def _access(self, question: Question) -> Object:
        spec = _spec(question.obj, _AccessSpec)
        user = User(spec.user, spec.groups or (), spec.uid, spec.extra or {})
        return self._decide(question, spec, user)

    def _local_access(self, question: Question) -> Object:
        namespace = question.call.info.namespace
        if (question.obj.get("metadata") or {}).get("namespace", namespace) != namespace:
            raise BadRequest(f"spec.resourceAttributes.namespace must match namespace: {namespace}")
        return self._access(question)

    def _self_access(self, question: Question) -> Object:
        return self._decide(question, _spec(question.obj, _AccessSpec), question.call.user)

    def _decide(self, question: Question, spec: _AccessSpec, user: User) -> Object:
        asked = _attributes(spec, user, question.call.cluster)
        decision = self._authorizer.authorize(question.snapshot, asked, deep=question.deep)
        status: Object = {"allowed": decision.allowed}
        if decision.denied:
            status["denied"] = True
        if decision.reason:
            # As in kcp, a review does not tell the absence of a workspace from that of a permission.
            status["reason"] = decision.reason if decision.allowed else ACCESS_DENIED
        return status

    def _rules(self, question: Question) -> Object:
        namespace = _spec(question.obj, _RulesSpec).namespace
        if not namespace:
            raise BadRequest("no namespace on request")
        call = question.call
        found = self._authorizer.rules(question.snapshot, call.user, call.cluster or SYSTEM_ADMIN, namespace)
        status: Object = {
            "resourceRules": [_resource_rule(rule) for rule in found.rules if rule.resources],
            "nonResourceRules": [
                {"verbs": list(rule.verbs), "nonResourceURLs": list(rule.urls)} for rule in found.rules if rule.urls
            ],
            "incomplete": bool(found.errors),
        }
        if found.errors:
            status["evaluationError"] = "[" + ", ".join(found.errors) + "]"
        return status


Spec = TypeVar("Spec", _TokenSpec, _AccessSpec, _RulesSpec)


def _spec(obj: Object, shape: type[Spec]) -> Spec:
    try:
        return msgspec.convert(spec_of(obj), shape)
    except msgspec.ValidationError as error:
        raise BadRequest(f"the review cannot be read: {error}") from error


def _attributes(spec: _AccessSpec, user: User, cluster: str) -> Attributes:
    """Return the attributes of an access review, which the kind has validated."""
    if (path := spec.non_resource_attributes) is not None:
        return Attributes(user=user, verb=path.verb, cluster=cluster, path=path.path or "/")
    asked = spec.resource_attributes or _Resource()
    return Attributes(
        user=user,
        verb=asked.verb,
        cluster=cluster,
        group=asked.group,
        version=asked.version,
        resource=asked.resource,
        subresource=asked.subresource,
        namespace=asked.namespace,
        name=asked.name,
        field_selector=asked.field_selector.raw_selector if asked.field_selector else "",
        label_selector=asked.label_selector.raw_selector if asked.label_selector else "",
    )


def _check_metadata(call: Call, obj: Object) -> None:
    """Check that the review's namespace is that of the URL."""
    metadata = obj.setdefault("metadata", {})
    if call.kind.namespaced and isinstance(metadata, dict):
        metadata.setdefault("namespace", call.info.namespace)


def _resource_rule(rule: Rule) -> Object:
    found: Object = {"verbs": list(rule.verbs), "apiGroups": list(rule.groups), "resources": list(rule.resources)}
    if rule.names:
        found["resourceNames"] = list(rule.names)
    return found


def user_info(user: User) -> Object:
    """Return a user as authentication.k8s.io UserInfo."""
    info: Object = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    if user.groups:
        info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {key: list(values) for key, values in user.extra.items()}
    return info
