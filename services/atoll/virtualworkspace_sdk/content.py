"""The content of a third-party view: one kind, for users that the shard authorizes.

    /services/<view>/clusters/<workspace or *>/apis/<group>/<version>/<resource>

`virtualworkspaces.framework` brings requests here. Discovery and OpenAPI are open to every authenticated user, rows to
users that `reviews` allows. A view whose author says how is written too, in one workspace at a time. Invariant: no row
is served or written before the rows were complete once.
"""

from __future__ import annotations

from atoll.machinery.apiserver.authorization.attributes import Decision, attributes_of, with_verb
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import View as Reading
from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.apiserver.request import Request, RequestScope, ScopeAuthorizer
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.status import Details, ServiceUnavailable
from atoll.machinery.meta.user import AUTHENTICATED, User
from atoll.machinery.storage.contract import Snapshot
from atoll.virtualworkspace_sdk.reviews import Reviews
from atoll.virtualworkspace_sdk.rows import Rows
from atoll.virtualworkspace_sdk.view import WRITE_VERBS
from atoll.virtualworkspaces.framework import READ_VERBS, Own, is_listed, view_kind


class Content:
    """`framework.Content` of a third-party view."""

    own_segments = 0

    def __init__(self, kinds: list[Kind], rows: Rows, reviews: Reviews, *, writes: bool) -> None:
        self._verbs = (*READ_VERBS, *WRITE_VERBS) if writes else READ_VERBS
        served = (view_kind(kind, self._verbs, kind.subresources if writes else ()) for kind in kinds)
        self._catalog = Catalog(list(served))
        self._rows, self._reviews = rows, reviews

    def opens(self, view: Reading, user: User, own: Own) -> bool:
        """Return whether the user is authenticated by a trusted proxy."""
        return AUTHENTICATED in user.groups

    def show(self, request: Request, snapshot: Snapshot, own: Own) -> RequestScope:
        """Return the scope of the kind.

        Raises NotFound for other documents, ServiceUnavailable before the rows are complete.
        """
        info = request.info
        if not is_listed(info):
            raise errors.not_served()
        if info.is_resource and not self._rows.complete:
            raise ServiceUnavailable("the view is not complete yet", Details(retry_after_s=1))
        return RequestScope(authorize=self._authorizer(request), catalog=self._catalog, keeps_watches=False)

    def _authorizer(self, request: Request) -> ScopeAuthorizer:
        def authorize(view: Reading, verb: str) -> Decision:
            if not request.info.is_resource:
                return Decision(True)
            if verb not in self._verbs or (verb not in READ_VERBS and not request.cluster):
                return Decision(False)
            attributes = attributes_of(request.info, request.user, request.cluster)
            return self._reviews.decide(with_verb(attributes, verb))

        return authorize
