"""Mounts of workspaces of this installation: their URL is one of its external URLs and `/clusters/<workspace>`.

Shards and front proxies call `destination` for a path that ends in a mount. Such a mount is a route: the request is
served as if it named the other workspace, with the caller's own credential, and no connection is made. Invariant: a
chain of routes has at most MAX_ROUTES mounts, whatever tenants write.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.federation.pathindex import PathIndex
from atoll.machinery.meta.names import is_workspace_path

MAX_ROUTES = 4
_HTTPS_PORT = 443


class ExternalUrl(NamedTuple):
    """The parts of a URL of the installation: host in lower case, port, and path without a slash at its end."""

    host: str
    port: int
    path: str


def external_url(url: str) -> ExternalUrl | None:
    """Return the parts of an https URL; None for any other text."""
    try:
        parts = urlsplit(url)
        port = parts.port or _HTTPS_PORT
    except ValueError:
        return None
    if parts.scheme != "https" or not parts.hostname or parts.username is not None or parts.query or parts.fragment:
        return None
    return ExternalUrl(parts.hostname, port, parts.path.rstrip("/"))


def workspace_of(url: str, own: Collection[ExternalUrl]) -> str:
    """Return the workspace that a URL of the installation names, and nothing below; "" for any other URL."""
    found = external_url(url)
    if found is None:
        return ""
    above, _, workspace = found.path.rpartition("/clusters/")
    workspace = unquote(workspace)
    return workspace if found._replace(path=above) in own and is_workspace_path(workspace) else ""


def destination(index: PathIndex, view: View, workspace: str, own: Collection[ExternalUrl]) -> str | None:
    """Return the workspace that a path leads to through mounts of the installation: itself, or the last one; None if
    they lead to each other, or are too many."""
    for _ in range(MAX_ROUTES + 1):
        mounted = index.mounted(view, workspace)
        onward = workspace_of(mounted.url, own) if mounted is not None and mounted.ready else ""
        if not onward:
            return workspace
        workspace = onward
    return None
