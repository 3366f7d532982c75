"""The kinds of a workspace as the edge layer's views serve them.

Kinds that would be in effect in the center are served under an identity of their own, also where the workspace lacks
them; kinds of the center alone are not served. Catalogs are cached by the workspace's own (bounded). Invariant: no kind
of a denatured category has the identity under which the server uses its objects.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.edge.categories import is_in_edge_view
from atoll.machinery.edge.denaturing import IDENTITY, is_denatured
from atoll.machinery.kinds.kind import Kind, no_warnings
from atoll.machinery.meta.lru import LruCache

MAX_CATALOGS = 256
#: Denatured kinds that a workspace may lack, as root's export `kubernetes` names them.
_SHIPPED = (
    "limitranges.core",
    "apiservices.apiregistration.k8s.io",
    "flowschemas.flowcontrol.apiserver.k8s.io",
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
)
#: Subresources that would have an effect here.
_IN_EFFECT = ("token",)


class EdgeCatalogs:
    """Makes these catalogs. `catalogs` are those of the shard's own clusters."""

    def __init__(self, catalogs: Catalogs) -> None:
        self._catalogs = catalogs
        self._kept: LruCache[int, tuple[Catalog, Catalog]] = LruCache(MAX_CATALOGS)

    def of(self, view: View, cluster: str) -> Catalog:
        """Return the catalog of a workspace. Raises KindsPending for who can wait."""
        own = self.own(view, cluster)
        kept = self._kept.get(id(own))
        # The entry keeps the workspace's catalog alive, so an equal id means the same one.
        if kept is None:
            kept = own, Catalog(self._kinds(own), own.terminating, own.unavailable)
            self._kept.put(id(own), kept)
        return kept[1]

    def own(self, view: View, cluster: str) -> Catalog:
        """Return the workspace's own catalog."""
        return self._catalogs.of(view, cluster)

    def _kinds(self, own: Catalog) -> Iterator[Kind]:
        served = [kind for kind in own.kinds.values() if is_in_edge_view(kind.group, kind.plural)]
        yield from (_as_data(kind) if is_denatured(kind.group, kind.plural) else kind for kind in served)
        present = {(kind.group, kind.plural) for kind in served}
        for row in _SHIPPED:
            for kind in self._catalogs.shipped.of_row(row, IDENTITY):
                if (kind.group, kind.plural) not in present:
                    yield _as_data(kind)


def _as_data(kind: Kind) -> Kind:
    subresources = tuple(each for each in kind.subresources if each.name not in _IN_EFFECT)
    # Warnings are about what an object does here.
    return replace(kind, identity=IDENTITY, subresources=subresources, virtual=None, warnings=no_warnings)
