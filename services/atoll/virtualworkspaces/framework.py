"""Routing and access check common to all virtual workspaces.

    /services/<view>/<its own segments>/clusters/<cluster or *>/<what a cluster serves>

The pipeline calls `enter` in place of authorization. The view (`Content`) decides which users may open it and then
returns the inner scope of the request: its authorizer, catalog and write rules. Discovery, verbs, lists and watches are
the shard's own. Invariant: a caller without access learns nothing, not even whether the URL exists.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Protocol

from msgspec.structs import replace

from atoll.machinery.apiserver.authorization.attributes import attributes_of
from atoll.machinery.apiserver.authorization.refusal import forbidden
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.call.requestinfo import RequestInfo, inside, parse
from atoll.machinery.apiserver.catalog.shipped_kinds import ShippedKinds
from atoll.machinery.apiserver.request import Request, RequestScope
from atoll.machinery.kinds.kind import Kind, Subresource
from atoll.machinery.meta.names import is_cluster_name, is_workspace_path
from atoll.machinery.meta.user import User
from atoll.machinery.storage.contract import Snapshot

#: `services` and the view's name.
_PREFIX = 2
READ_VERBS = ("get", "list", "watch")
#: First path segments of the discovery documents; a view serves these and objects.
DOCUMENTS = ("api", "apis", "openapi", "version")

#: The view's own URL segments, "" for missing ones.
Own = tuple[str, ...]


class Content(Protocol):
    """One virtual workspace."""

    @property
    def own_segments(self) -> int:
        """The number of URL segments that belong to the view."""

    def opens(self, view: View, user: User, own: Own) -> bool:
        """Return whether the user may open the view. Called for every URL below the view, well formed or not.

        For a view without segments of its own, `own` is the cluster of the URL, "" for none.
        """

    def show(self, request: Request, snapshot: Snapshot, own: Own) -> RequestScope:
        """Return the scope of the request; its `info` and `cluster` are the inner ones. Raise ApiError."""


#: Finds the logical cluster of a workspace path, None for an unknown one.
Resolve = Callable[[View, str], str | None]


class VirtualWorkspace:
    """The pipeline's handler of a view. Its requests wait until the kinds of `shipped` are loaded, if they need them.

    With `resolve`, URLs may name the workspace by its path instead of its cluster.

    With `implied`, URLs may omit `/clusters/<cluster>`; the cluster is then the first of the view's own segments. With
    `acting`, a caller may act for a user of a workspace: the content authorizes `request.user` and `request.acts_for`.
    """

    def __init__(
        self,
        content: Content,
        shipped: ShippedKinds | None = None,
        *,
        implied: bool = False,
        acting: bool = False,
        resolve: Resolve | None = None,
    ) -> None:
        self._content, self._implied, self._acting, self._resolve = content, implied, acting, resolve
        self._shipped = ShippedKinds("") if shipped is None else shipped

    def acts_within(self, info: RequestInfo) -> str:
        """Return the workspace of a URL of the view in which a caller may act for another user, "" for none."""
        rest = info.path.split("/")[_PREFIX + 1 + self._content.own_segments :] if self._acting else []
        named = len(rest) > 1 and rest[0] == "clusters" and is_cluster_name(rest[1])
        return rest[1] if named else ""

    def users_of(self, info: RequestInfo, snapshot: Snapshot) -> str:
        """Views are outside of clusters."""
        return ""

    def enter(self, request: Request, snapshot: Snapshot) -> None:
        """Check access and set the inner scope. Raises Forbidden, NotFound, KindsPending, and what the view raises."""
        depth, segments = self._content.own_segments, request.info.path.split("/")[_PREFIX + 1 :]
        own: Own = (*segments[:depth], *[""] * (depth - len(segments)))
        if not depth:
            own = (self._cluster_of(snapshot, segments),)
        if not self._content.opens(snapshot, request.user, own):
            raise forbidden(attributes_of(request.info, request.user, ""))
        request.info = self._inner(request, own, segments[depth:])
        request.cluster = "" if request.info.is_wildcard else request.info.workspace
        self._shipped.caller.can_wait = True
        try:
            request.enter(self._content.show(request, snapshot, own))
        finally:
            self._shipped.caller.can_wait = False

    def _cluster_of(self, snapshot: Snapshot, segments: list[str]) -> str:
        """Return the cluster that a URL names, "" for none."""
        named = segments[1] if len(segments) > 1 and segments[0] == "clusters" else ""
        if is_cluster_name(named) or self._resolve is None or not is_workspace_path(named):
            return named if is_cluster_name(named) else ""
        return self._resolve(snapshot, named) or ""

    def _inner(self, request: Request, own: Own, rest: list[str]) -> RequestInfo:
        """Return the inner request info. Raises NotFound."""
        depth = self._content.own_segments
        target = inside(request.target, _PREFIX + depth)
        if self._implied and any(rest) and rest[0] != "clusters":
            target = f"/clusters/{own[0]}".encode() + target
        elif len(rest) < 2 or rest[0] != "clusters":
            raise errors.not_served()
        if not depth and own[0]:
            target = f"/clusters/{own[0]}".encode() + inside(target, 2)
        inner = parse(request.info.method, target)
        if not inner.is_wildcard and not is_cluster_name(inner.workspace):
            raise errors.not_served()
        request.sent_on = target
        return inner


def is_listed(info: RequestInfo) -> bool:
    """Return whether a path in a view is a resource or a discovery document."""
    return info.is_resource or info.path.strip("/").split("/")[0] in DOCUMENTS


def view_kind(kind: Kind, verbs: tuple[str, ...] = READ_VERBS, subresources: tuple[Subresource, ...] = ()) -> Kind:
    """Return a kind as a view serves it: read only by default."""
    return replace(kind, verbs=verbs, subresources=subresources)


def selected(info: RequestInfo, selector: str) -> RequestInfo:
    """Return a list or watch request with a label selector added to the client's own."""
    requested = info.query.get("labelSelector", "")
    query = {**info.query, "labelSelector": f"{selector},{requested}" if requested else selector}
    return replace(info, query=MappingProxyType(query))
