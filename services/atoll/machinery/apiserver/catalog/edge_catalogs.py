"""The kinds of a workspace as the edge layer's views serve them, and as controllers delete what is stored so.

Kinds that would be in effect in the center are served under an identity of their own, also where the workspace lacks
them; kinds of the center alone are not served. `catalogs` has one instance, which caches catalogs by the workspaces'
own (bounded). Invariant: no kind of a denatured category has the identity under which the server uses its objects.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.apiserver.catalog.shipped_kinds import ShippedKinds
from atoll.machinery.edge.categories import is_in_edge_view
from atoll.machinery.edge.denaturing import IDENTITY, is_denatured
from atoll.machinery.kinds.kind import Kind, no_warnings
from atoll.machinery.meta.lru import LruCache

MAX_CATALOGS = 256
_FLOW_CONTROL = "flowcontrol.apiserver.k8s.io"
#: Denatured kinds that a workspace may lack: group and kind -> row of root's export `kubernetes`.
_SHIPPED = {
    ("", "LimitRange"): "limitranges.core",
    ("apiregistration.k8s.io", "APIService"): "apiservices.apiregistration.k8s.io",
    (_FLOW_CONTROL, "FlowSchema"): f"flowschemas.{_FLOW_CONTROL}",
    (_FLOW_CONTROL, "PriorityLevelConfiguration"): f"prioritylevelconfigurations.{_FLOW_CONTROL}",
}
#: Subresources that would have an effect here.
_IN_EFFECT = ("token",)


class EdgeCatalogs:
    """Makes these catalogs."""

    def __init__(self, shipped: ShippedKinds) -> None:
        self._shipped = shipped
        self._kept: LruCache[int, tuple[Catalog, Catalog]] = LruCache(MAX_CATALOGS)

    def of(self, own: Catalog) -> Catalog:
        """Return the catalog that goes with a workspace's own. Raises KindsPending for who can wait."""
        kept = self._kept.get(id(own))
        # The entry keeps the workspace's catalog alive, so an equal id means the same one.
        if kept is None:
            kept = own, Catalog(self._kinds(own), own.terminating, own.unavailable)
            self._kept.put(id(own), kept)
        return kept[1]

    def denatured(self, own: Catalog, group: str, version: str, kind: str) -> Kind | None:
        """Return a kind under which objects are stored apart, None for a kind without such objects."""
        served = own.by_version.get((group, version), ())
        in_effect = any(each.kind == kind and is_denatured(group, each.plural) for each in served)
        if not in_effect and (group, kind) not in _SHIPPED:
            return None
        return next((each for each in self.of(own).by_version.get((group, version), ()) if each.kind == kind), None)

    def _kinds(self, own: Catalog) -> Iterator[Kind]:
        served = [kind for kind in own.kinds.values() if is_in_edge_view(kind.group, kind.plural)]
        yield from (_as_data(kind) if is_denatured(kind.group, kind.plural) else kind for kind in served)
        present = {(kind.group, kind.kind) for kind in served}
        for name, row in _SHIPPED.items():
            if name not in present:
                yield from map(_as_data, self._shipped.of_row(row, IDENTITY))


def _as_data(kind: Kind) -> Kind:
    subresources = tuple(each for each in kind.subresources if each.name not in _IN_EFFECT)
    # Warnings are about what an object does here.
    return replace(kind, identity=IDENTITY, subresources=subresources, virtual=None, warnings=no_warnings)
