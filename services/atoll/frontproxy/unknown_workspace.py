"""The error for a workspace that does not exist: byte for byte what a shard says of one without access.

`handler` uses it for a wildcard, for a malformed path, and for an unresolved path if no shard can answer in its place.
A shard's pipeline makes the same checks in the same order; tests compare the two. Invariant: the response depends on
the request and its user, never on which workspaces exist.
"""

from __future__ import annotations

from atoll.frontproxy.authentication import RequestUser
from atoll.machinery.apiserver.authentication.impersonation import Impersonator, impersonation_request
from atoll.machinery.apiserver.authorization.attributes import attributes_of
from atoll.machinery.apiserver.authorization.authorizer import Authorizer
from atoll.machinery.apiserver.authorization.refusal import ACCESS_DENIED, WORKSPACE_ACCESS_NOT_PERMITTED, forbidden
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.call.requestinfo import RequestInfo
from atoll.machinery.apiserver.serving.pipeline import UNKNOWN
from atoll.machinery.meta.status import ApiError, Unauthorized
from atoll.machinery.meta.user import ANONYMOUS_USER
from atoll.machinery.wire.exchange import HttpRequest


class UnknownWorkspace:
    """Makes the errors. One for each event loop."""

    def __init__(self) -> None:
        self._impersonator = Impersonator(Authorizer())

    def error(self, request: HttpRequest, info: RequestInfo, requester: RequestUser, view: View) -> ApiError:
        """The error of a request to a workspace that does not exist."""
        user = requester.user
        if not requester.verified and user is ANONYMOUS_USER and "authorization" in request.headers:
            # No workspace knows a credential that cannot be verified here.
            return Unauthorized()
        try:
            want = impersonation_request(request.headers)
            if want is not None:
                user = self._impersonator.act_as(want, user, UNKNOWN, view)
        except ApiError as error:
            return error
        reason = WORKSPACE_ACCESS_NOT_PERMITTED if info.identity is None else ACCESS_DENIED
        return forbidden(attributes_of(info, user, UNKNOWN), reason)
