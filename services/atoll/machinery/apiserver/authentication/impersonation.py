"""Impersonation: acting as somebody else, for who may, within one workspace.

The authenticator calls it after it knows the requestor. Kubernetes asks the authorizer for the verb
`impersonate` on each part of the identity; kcp adds that nobody gets a group of power that they are not in,
nor a name or extra that the system makes itself, and that the borrowed identity counts only in the cluster it
was borrowed in. system:masters is bound by neither. Invariant: no chain of impersonations raises what one may
do anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

import msgspec

from atoll.machinery.apiserver.authentication.request_headers import Headers, in_family
from atoll.machinery.apiserver.authentication.service_accounts import account_groups
from atoll.machinery.apiserver.authorization.attributes import Attributes
from atoll.machinery.apiserver.authorization.chain import Authorizer
from atoll.machinery.apiserver.authorization.effective_users import SCOPES, effective_users, in_scope
from atoll.machinery.apiserver.authorization.groups import (
    RESERVED_EXTRA,
    RESERVED_PREFIXES,
    SERVICE_ACCOUNT_PREFIX,
    is_privileged,
)
from atoll.machinery.apiserver.authorization.refusal import forbidden, quoted
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.meta.status import BadRequest, Forbidden
from atoll.machinery.meta.user import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User

_FAMILY = "impersonate-"
_USER, _GROUP, _UID, _EXTRA = (_FAMILY + part for part in ("user", "group", "uid", "extra-"))
_AUTHENTICATION = "authentication.k8s.io"


class ImpersonationRequest(msgspec.Struct, frozen=True):
    """The identity a request asks to be taken for. `groups` is None where no group header was sent."""

    user: str
    groups: tuple[str, ...] | None
    uid: str
    extra: dict[str, tuple[str, ...]]


def impersonation_request(headers: Headers) -> ImpersonationRequest | None:
    """What the headers ask for, None for nothing. Raises BadRequest for headers that make no identity."""
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
    """Turns a requestor into whom they may act as."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def act_as(self, want: ImpersonationRequest, requestor: User, cluster: str, snapshot: View) -> User:
        """The identity the request goes on with. Raises Forbidden."""
        master = requestor.is_master and in_scope(requestor, cluster)
        if not master:
            _keep_out(want, requestor, cluster)
        for asked in _questions(want, requestor, cluster):
            decision = self._authorizer.authorize(snapshot, asked)
            if not decision.allowed:
                raise forbidden(asked, decision.reason)
        extra = dict(want.extra)
        if not master:
            extra[SCOPES] = (f"cluster:{cluster}",)
        return User(want.user, _groups(want), want.uid, extra)


def _keep_out(want: ImpersonationRequest, requestor: User, cluster: str) -> None:
    """kcp's gatekeeper: what no permission inside a workspace can give."""
    for key in want.extra:
        if RESERVED_EXTRA in key:
            text = f"impersonating the extra key {quoted(key)} is not allowed for the requestor"
            raise Forbidden(f"forbidden: {text}")
    held = effective_users(requestor, cluster).own.groups
    rising = any(is_privileged(group) and group not in held for group in want.groups or ())
    if rising or want.user.startswith(RESERVED_PREFIXES):
        raise Forbidden("forbidden: impersonation is not allowed for the requestor")


def _questions(want: ImpersonationRequest, requestor: User, cluster: str) -> Iterator[Attributes]:
    """What the authorizer must allow, in the order in which Kubernetes asks."""

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
        yield may("serviceaccounts", account[1], namespace=account[0])
    else:
        yield may("users", want.user)
    for group in want.groups or ():
        yield may("groups", group)
    for key, values in want.extra.items():
        for value in values:
            yield may("userextras", value, _AUTHENTICATION, sub=key)
    if want.uid:
        yield may("uids", want.uid, _AUTHENTICATION)


def _service_account(name: str) -> tuple[str, str] | None:
    """Namespace and name of a service account's user name."""
    if not name.startswith(SERVICE_ACCOUNT_PREFIX):
        return None
    namespace, colon, account = name.removeprefix(SERVICE_ACCOUNT_PREFIX).partition(":")
    return (namespace, account) if colon and namespace and account and ":" not in account else None


def _groups(want: ImpersonationRequest) -> tuple[str, ...]:
    groups = want.groups or ()
    account = _service_account(want.user)
    if account is not None and want.groups is None:
        groups = account_groups(account[0])
    if AUTHENTICATED in groups or UNAUTHENTICATED in groups:
        return groups
    return (*groups, UNAUTHENTICATED if want.user == ANONYMOUS else AUTHENTICATED)
