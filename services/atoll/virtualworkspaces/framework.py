"""The way into a virtual workspace, the same for all of them.

    /services/<view>/<its own segments>/clusters/<cluster or *>/<what a cluster serves>

The pipeline calls `enter` in place of authorization. The view (`Content`) says who may open it and, once it is open,
what the request is inside: its judge, what is served, what a write must keep. Discovery, verbs, lists and watches are
then the shard's own. Invariant: a view that does not let the caller in tells nothing of what is behind it, not even
whether the URL leads anywhere; and no path of a workspace is resolved here, only names of clusters.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Protocol

from msgspec.structs import replace

from atoll.machinery.apiserver.authorization.attributes import attributes_of
from atoll.machinery.apiserver.authorization.refusal import forbidden
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.call.requestinfo import RequestInfo, inside, parse
from atoll.machinery.apiserver.request import Request, RequestScope
from atoll.machinery.kinds.kind import Kind, Subresource
from atoll.machinery.meta.names import is_cluster_name
from atoll.machinery.meta.user import User
from atoll.machinery.storage.contract import Snapshot

#: `services` and the view's name.
_PREFIX = 2
READ_VERBS = ("get", "list", "watch")
#: First segments of the documents that tell of kinds, which is all that a view has beside objects.
DOCUMENTS = ("api", "apis", "openapi", "version")

#: The view's own segments of a URL, "" for those that are missing.
Own = tuple[str, ...]


class Content(Protocol):
    """One virtual workspace."""

    @property
    def own_segments(self) -> int:
        """How many segments of the URL are its own."""

    def opens(self, view: View, user: User, own: Own) -> bool:
        """Whether somebody may come in. Asked for every URL below the view, well formed or not."""

    def show(self, request: Request, snapshot: Snapshot, own: Own) -> RequestScope:
        """Return what the request may reach; its `info` and `cluster` are those inside of the view. Raise ApiError."""


class VirtualWorkspace:
    """The pipeline's Service for a view. `implied`: URLs may leave out `/clusters/<cluster>`, which then is the cluster
    that the first of the view's own segments names."""

    def __init__(self, content: Content, *, implied: bool = False) -> None:
        self._content, self._implied = content, implied

    def enter(self, request: Request, snapshot: Snapshot) -> None:
        """Let in who may open the view. Raises Forbidden, NotFound, and what the view raises."""
        depth, segments = self._content.own_segments, request.info.path.split("/")[_PREFIX + 1 :]
        own: Own = (*segments[:depth], *[""] * (depth - len(segments)))
        if not self._content.opens(snapshot, request.user, own):
            raise forbidden(attributes_of(request.info, request.user, ""))
        request.info = self._inner(request, own, segments[depth:])
        request.cluster = "" if request.info.is_wildcard else request.info.workspace
        request.enter(self._content.show(request, snapshot, own))

    def _inner(self, request: Request, own: Own, rest: list[str]) -> RequestInfo:
        """What the request is inside. Raises NotFound."""
        target = inside(request.target, _PREFIX + len(own))
        if self._implied and any(rest) and rest[0] != "clusters":
            target = f"/clusters/{own[0]}".encode() + target
        elif len(rest) < 2 or rest[0] != "clusters":
            raise errors.not_served()
        inner = parse(request.info.method, target)
        if not inner.is_wildcard and not is_cluster_name(inner.workspace):
            raise errors.not_served()
        request.sent_on = target
        return inner


def is_listed(info: RequestInfo) -> bool:
    """Whether a path inside of a view is one that views have."""
    return info.is_resource or info.path.strip("/").split("/")[0] in DOCUMENTS


def shown(kind: Kind, verbs: tuple[str, ...] = READ_VERBS, subresources: tuple[Subresource, ...] = ()) -> Kind:
    """A kind as a view has it: read only unless it says otherwise."""
    return replace(kind, verbs=verbs, subresources=subresources)


def selected(info: RequestInfo, selector: str) -> RequestInfo:
    """A list or watch of those only that a label selector selects, beside what the client selects."""
    asked = info.query.get("labelSelector", "")
    query = {**info.query, "labelSelector": f"{selector},{asked}" if asked else selector}
    return replace(info, query=MappingProxyType(query))
