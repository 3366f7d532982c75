"""Routing after authorization: resource requests to the verbs, all others to the fixed documents.

Shards, cache servers and third-party virtual workspace servers share it. `NoWorkspaces` is the resolver of a server
without workspaces.
"""

from __future__ import annotations

from collections.abc import Callable

from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.requestinfo import RequestInfo
from atoll.machinery.apiserver.serving.documents import Documents
from atoll.machinery.apiserver.serving.pipeline import Destination, Route
from atoll.machinery.apiserver.serving.resources import Resources
from atoll.machinery.storage.contract import Snapshot


class NoWorkspaces:
    """Resolves no workspace path, for servers of virtual workspaces alone."""

    types = ()

    def find(self, snapshot: Snapshot, workspace: str) -> Destination | None:
        """Return None."""
        return None

    def require_none(self, workspace: str) -> None:
        """Return: there is no other shard."""


def routes(resources: Resources, documents: Documents) -> Callable[[RequestInfo], Route]:
    """Return the router of requests. It raises NotFound below `/services/`, for an unknown virtual workspace."""

    def route(info: RequestInfo) -> Route:
        if info.service:
            raise errors.not_served()
        return resources if info.is_resource else documents

    return route
