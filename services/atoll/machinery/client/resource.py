"""Resources of requests and their URL paths.

`Client` and `Informer` take a `Resource` in every call. Invariant: every part of a path is quoted, so that a name
never becomes another path.
"""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from atoll.machinery.meta.objects import Object


class Resource(msgspec.Struct, frozen=True):
    """A group, version and plural. `identity` goes with wildcard requests on exported APIs (kcp's `plural:hash`)."""

    group: str
    version: str
    plural: str
    namespaced: bool = True
    identity: str = ""

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return its path below a cluster; an empty namespace means all namespaces, an empty name the collection."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(f"{self.plural}:{self.identity}" if self.identity else self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/" + "/".join(quote(part, safe=":") for part in parts)


class WatchEvent(msgspec.Struct, frozen=True):
    """One event of a watch. `type` is ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: Object


WORKSPACES = Resource("tenancy.kcp.io", "v1alpha1", "workspaces", namespaced=False)
