"""What is said of a workspace that is not there: letter by letter what a shard says of one that is closed.

The handler asks for a wildcard, for what is no path, and for a path that leads nowhere where no shard can be asked to
say so itself. A shard's pipeline does the same in the same order; the crawls of the site's tests hold the two together.
Invariant: the answer depends on the question and on who asks, never on what exists.
"""

from __future__ import annotations

from atoll.frontproxy.authentication import RequestUser
from atoll.machinery.apiserver.authentication.impersonation import Impersonator, wanted
from atoll.machinery.apiserver.authorization.attributes import attributes_of
from atoll.machinery.apiserver.authorization.chain import Authorizer
from atoll.machinery.apiserver.authorization.refusal import ACCESS_DENIED, WORKSPACE_ACCESS_NOT_PERMITTED, forbidden
from atoll.machinery.apiserver.call import View
from atoll.machinery.apiserver.pipeline import UNKNOWN
from atoll.machinery.apiserver.requestinfo import RequestInfo
from atoll.machinery.meta.status import ApiError, Unauthorized
from atoll.machinery.meta.user import ANONYMOUS_USER
from atoll.machinery.wire.exchange import HttpRequest


class UnknownWorkspace:
    """Refuses. One an event loop."""

    def __init__(self) -> None:
        self._impersonator = Impersonator(Authorizer())

    def refusal(self, request: HttpRequest, info: RequestInfo, caller: RequestUser, view: View) -> ApiError:
        """The error of a request to a workspace that is not there."""
        user = caller.user
        if not caller.vouched and user is ANONYMOUS_USER and "authorization" in request.headers:
            # A credential that nobody here can judge is one that no workspace knows.
            return Unauthorized()
        try:
            want = wanted(request.headers)
            if want is not None:
                user = self._impersonator.act_as(want, user, UNKNOWN, view)
        except ApiError as error:
            return error
        reason = WORKSPACE_ACCESS_NOT_PERMITTED if info.identity is None else ACCESS_DENIED
        return forbidden(attributes_of(info, user, UNKNOWN), reason)
