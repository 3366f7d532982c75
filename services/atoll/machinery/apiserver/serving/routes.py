"""Routing after authorization: a resource request goes to the verbs, everything else to the fixed documents.

Shards, cache servers and views of third parties share it. `NoWorkspaces` is the resolver of a server that has none.
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
    """Resolves no workspace path: everything is behind the URL of a virtual workspace."""

    def find(self, snapshot: Snapshot, workspace: str) -> Destination | None:
        """Return None."""
        return None


def routes(resources: Resources, documents: Documents) -> Callable[[RequestInfo], Route]:
    """Return what answers a request. Raise NotFound below `/services/`, where no virtual workspace took it."""

    def route(info: RequestInfo) -> Route:
        if info.service:
            raise errors.not_served()
        return resources if info.is_resource else documents

    return route
