"""The content of a third-party view: one kind, read only, for users that the shard authorizes.

    /services/<view>/clusters/<workspace or *>/apis/<group>/<version>/<resource>

`virtualworkspaces.framework` brings requests here. Discovery and OpenAPI are open to every authenticated user, rows to
users that `reviews` allows. Invariant: no row is served before the rows were complete once.
"""

from __future__ import annotations

import asyncio

from atoll.machinery.apiserver.authentication.oidc.issuer_keys import AuthenticationPending
from atoll.machinery.apiserver.authorization.attributes import Decision, attributes_of, with_verb
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import View as Reading
from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.apiserver.request import Request, RequestScope, ScopeAuthorizer
from atoll.machinery.apiserver.serving.open_watches import OpenWatches, StillAllowed
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.status import Details, ServiceUnavailable
from atoll.machinery.meta.user import AUTHENTICATED, User
from atoll.machinery.storage.contract import Snapshot, Store
from atoll.virtualworkspace_sdk.reviews import Reviews
from atoll.virtualworkspace_sdk.rows import Rows
from atoll.virtualworkspaces.framework import READ_VERBS, Own, is_listed, view_kind

REAUTHORIZE_EVERY_S = 5.0


async def reauthorize_watches(watches: OpenWatches, store: Store) -> None:
    """Authorize every open watch periodically, until cancelled; end those no longer allowed.

    The view is not notified when a permission is withdrawn at the shard, so it polls.
    """
    while True:
        await asyncio.sleep(REAUTHORIZE_EVERY_S)
        for watch, still in watches.conditional():
            if not await _holds(still, store):
                watch.end()


async def _holds(still: StillAllowed, store: Store) -> bool:
    try:
        with store.snapshot() as snapshot:
            return still.holds(snapshot)
    except AuthenticationPending as error:
        await error.complete()
    try:
        with store.snapshot() as snapshot:
            return still.holds(snapshot)
    except AuthenticationPending:
        return False


class Content:
    """`framework.Content` of a third-party view."""

    own_segments = 0

    def __init__(self, kinds: list[Kind], rows: Rows, reviews: Reviews) -> None:
        self._catalog = Catalog([view_kind(kind) for kind in kinds])
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
            if verb not in READ_VERBS:
                return Decision(False)
            attributes = attributes_of(request.info, request.user, request.cluster)
            return self._reviews.decide(with_verb(attributes, verb))

        return authorize
