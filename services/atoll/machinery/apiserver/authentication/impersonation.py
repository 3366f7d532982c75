"""Impersonation within one logical cluster: the Impersonate-* headers.

The authenticator calls it with the authenticated requestor. As in Kubernetes, the authorizer must allow the verb
`impersonate` on each part of the identity. As in kcp, a requestor cannot gain a privileged group, nor a user name or
extra that is reserved to the system, and the impersonated user is scoped to the cluster of the request. Further scopes
only restrict it. A warrant is a further identity: it needs the same permissions and gets the same scope. system:masters
is exempt from the kcp rules. Invariant: no chain of impersonations adds rights anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace

from atoll.machinery.apiserver.authentication.request_headers import Headers, in_family
from atoll.machinery.apiserver.authentication.service_accounts import account_groups
from atoll.machinery.apiserver.authorization.attributes import Attributes
from atoll.machinery.apiserver.authorization.authorizer import Authorizer
from atoll.machinery.apiserver.authorization.effective_users import (
    SCOPES,
    WARRANT,
    decode_warrant,
    effective_users,
    encode_warrant,
    in_scope,
)
from atoll.machinery.apiserver.authorization.groups import RESERVED_EXTRA, RESERVED_PREFIXES, is_privileged
from atoll.machinery.apiserver.authorization.refusal import forbidden, quoted
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.meta.status import BadRequest, Forbidden
from atoll.machinery.meta.user import ANONYMOUS, AUTHENTICATED, SERVICE_ACCOUNT_PREFIX, UNAUTHENTICATED, User

_FAMILY = "impersonate-"
_USER, _GROUP, _UID, _EXTRA = (_FAMILY + part for part in ("user", "group", "uid", "extra-"))
_AUTHENTICATION = "authentication.k8s.io"


class ImpersonationRequest(msgspec.Struct, frozen=True):
    """The identity that a request asks for. `groups` is None if no group header was sent."""

    user: str
    groups: tuple[str, ...] | None
    uid: str
    extra: dict[str, tuple[str, ...]]


def impersonates(headers: Headers) -> bool:
    """Return whether there are impersonation headers, in any spelling."""
    return bool(in_family(headers, (_FAMILY,)))


def impersonation_request(headers: Headers) -> ImpersonationRequest | None:
    """Parse the impersonation headers; None without any. Raises BadRequest for malformed headers."""
    sent = in_family(headers, (_FAMILY,))
    if not sent:
        return None
    if any(name not in (_USER, _GROUP, _UID) and not name.startswith(_EXTRA) for name in sent):
        raise BadRequest(f"unknown impersonation header in {sorted(sent)}")
    if len(headers.get(_USER, [])) > 1 or len(headers.get(_UID, [])) > 1:
        raise BadRequest("more than one user or uid to impersonate")
    user = headers.get(_USER, [""])[0]
    if not user:
        raise BadRequest(f"requested {sorted(sent)} without impersonating a user name")
    extra: dict[str, tuple[str, ...]] = {}
    for name in sent:
        if name.startswith(_EXTRA):
            key = unquote(name[len(_EXTRA) :]).lower()
            extra[key] = (*extra.get(key, ()), *headers[name])
    groups = tuple(headers[_GROUP]) if _GROUP in headers else None
    return ImpersonationRequest(user, groups, headers.get(_UID, [""])[0], extra)


class Impersonator:
    """Authorizes impersonation."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def act_as(self, want: ImpersonationRequest, requestor: User, cluster: str, snapshot: View) -> User:
        """The impersonated user. Raises Forbidden."""
        master = requestor.is_master and in_scope(requestor, cluster)
        if not master:
            _check_privileges(want, requestor, cluster)
        self._authorize(want, requestor, cluster, snapshot)
        extra = want.extra if master else _scoped(want.extra, cluster)
        return User(want.user, _groups(want), want.uid, extra)

    def act_within(self, want: ImpersonationRequest, requestor: User, cluster: str) -> User:
        """The impersonated user of one cluster alone, for a virtual workspace that authorizes the requestor too.

        The user must not hold what the requestor lacks, so that no permission to impersonate is asked here: the virtual
        workspace asks for it. Raises Forbidden, also for an identity with scopes or warrants.
        """
        if SCOPES in want.extra or WARRANT in want.extra:
            raise Forbidden("forbidden: impersonation with scopes or warrants is not allowed in a virtual workspace")
        _check_privileges(want, requestor, cluster)
        return User(want.user, _groups(want), want.uid, _scoped(want.extra, cluster))

    def _authorize(self, want: ImpersonationRequest, requestor: User, cluster: str, snapshot: View) -> None:
        """Authorize the identity, and those in its warrants, as if each was asked for. Raises Forbidden."""
        for attributes in _attributes(want, requestor, cluster):
            decision = self._authorizer.authorize(snapshot, attributes)
            if not decision.allowed:
                raise forbidden(attributes, decision.reason)
        for warrant in _warrants(want) if not requestor.is_master else ():
            self._authorize(warrant, requestor, cluster, snapshot)


def _check_privileges(want: ImpersonationRequest, requestor: User, cluster: str) -> None:
    """kcp's impersonation gatekeeper: refuse what no permission inside a workspace may grant. Raises Forbidden."""
    for key in want.extra:
        if RESERVED_EXTRA in key and key not in (SCOPES, WARRANT):
            text = f"impersonating the extra key {quoted(key)} is not allowed for the requestor"
            raise Forbidden(f"forbidden: {text}")
    held = effective_users(requestor, cluster).own.groups
    escalates = any(is_privileged(group) and group not in held for group in want.groups or ())
    if escalates or want.user.startswith(RESERVED_PREFIXES):
        raise Forbidden("forbidden: impersonation is not allowed for the requestor")
    for warrant in _warrants(want):
        _check_privileges(warrant, requestor, cluster)


def _warrants(want: ImpersonationRequest) -> Iterator[ImpersonationRequest]:
    """The identities in the warrants of a request. Raises BadRequest for a malformed warrant."""
    for text in want.extra.get(WARRANT, ()):
        try:
            user = decode_warrant(text)
        except (msgspec.DecodeError, RecursionError):
            raise BadRequest("malformed warrant to impersonate") from None
        if not user.name:
            raise BadRequest("a warrant to impersonate names no user")
        yield ImpersonationRequest(user.name, user.groups, user.uid, dict(user.extra))


def _scoped(extra: Mapping[str, tuple[str, ...]], cluster: str) -> dict[str, tuple[str, ...]]:
    """The extras of an identity, and of those in its warrants, with one more scope: the cluster."""
    found = {**extra, SCOPES: (*extra.get(SCOPES, ()), f"cluster:{cluster}")}
    if WARRANT in extra:
        users = (decode_warrant(text) for text in extra[WARRANT])
        found[WARRANT] = tuple(encode_warrant(replace(user, extra=_scoped(user.extra, cluster))) for user in users)
    return found


def _attributes(want: ImpersonationRequest, requestor: User, cluster: str) -> Iterator[Attributes]:
    """The requests that the authorizer must allow, in Kubernetes' order."""

    def may(resource: str, name: str, group: str = "", namespace: str = "", sub: str = "") -> Attributes:
        return Attributes(
            user=requestor,
            verb="impersonate",
            cluster=cluster,
            group=group,
            version="v1",
            resource=resource,
            subresource=sub,
            namespace=namespace,
            name=name,
        )

    if (account := _service_account(want.user)) is not None:
        yield may("serviceaccounts", account.name, namespace=account.namespace)
    else:
        yield may("users", want.user)
    for group in want.groups or ():
        yield may("groups", group)
    for key, values in want.extra.items():
        for value in values:
            yield may("userextras", value, _AUTHENTICATION, sub=key)
    if want.uid:
        yield may("uids", want.uid, _AUTHENTICATION)


class _ServiceAccountName(NamedTuple):
    namespace: str
    name: str


def _service_account(name: str) -> _ServiceAccountName | None:
    """The service account of a user name; None for other users."""
    if not name.startswith(SERVICE_ACCOUNT_PREFIX):
        return None
    namespace, colon, account = name.removeprefix(SERVICE_ACCOUNT_PREFIX).partition(":")
    valid = colon and namespace and account and ":" not in account
    return _ServiceAccountName(namespace, account) if valid else None


def _groups(want: ImpersonationRequest) -> tuple[str, ...]:
    groups = want.groups or ()
    account = _service_account(want.user)
    if account is not None and want.groups is None:
        groups = account_groups(account.namespace)
    if AUTHENTICATED in groups or UNAUTHENTICATED in groups:
        return groups
    return (*groups, UNAUTHENTICATED if want.user == ANONYMOUS else AUTHENTICATED)
