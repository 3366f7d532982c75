"""Holders of resource names in a logical cluster: APIBindings (bound resources) and CRDs (accepted names).

The binding controller calls it before it binds. Invariant: the batch guards the revision of every holder found, so that
no name is assigned twice, whatever the order of writes; a new holder has to take a lock in the LogicalCluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.catalog.revision_cache import RevisionCache
from atoll.machinery.apiserver.writing.batch import Batch
from atoll.machinery.kcp.apis import apibindings
from atoll.machinery.kcp.apis.naming_conflicts import Holder, Names, names_of
from atoll.machinery.meta.objects import Object, decode, status_of
from atoll.machinery.meta.types import API_BINDINGS, CRDS
from atoll.machinery.storage.contract import RevisionUnchanged, Scope
from atoll.machinery.storage.pages import each_record, each_revision
from atoll.tenancy.bound_definitions import BoundCrds

#: Number of CRDs whose names are cached.
MAX_CACHED = 8192


class _DefinedNames(msgspec.Struct, frozen=True):
    """Group and accepted names of a CRD; the names are empty if none were accepted."""

    group: str
    names: Names


class HeldNames:
    """Finds holders of names. Names are cached by revision."""

    def __init__(self, bound: BoundCrds) -> None:
        self._bound = bound
        self._accepted = RevisionCache(accepted, MAX_CACHED)

    def beside(self, batch: Batch, cluster: str, binding: str, groups: Collection[str]) -> list[Holder]:
        """Return the holders of names of some groups in a cluster, except one binding; the batch guards them."""
        found: list[Holder] = []
        for record in each_record(batch, Scope(API_BINDINGS, cluster)):
            if record.key.name != binding:
                held = list(self._by(batch, decode(record.value), groups))
                if held:
                    batch.guard(RevisionUnchanged(record.key, record.revision))
                found.extend(held)
        return [*found, *self._definitions(batch, cluster, groups)]

    def _by(self, view: View, binding: Object, groups: Collection[str]) -> Iterator[Holder]:
        for item in status_of(binding).get("boundResources") or ():
            group = item.get("group") or ""
            if group in groups:
                crd = self._bound.get(view, item["schema"]["UID"])
                names = crd.names if crd is not None else Names(plural=item["resource"])
                yield Holder(apibindings.holder_name(binding), group, names)

    def _definitions(self, batch: Batch, cluster: str, groups: Collection[str]) -> Iterator[Holder]:
        for key, revision in each_revision(batch, Scope(CRDS, cluster)):
            found = self._accepted.of(batch, key, revision)
            if found.group not in groups:
                continue
            batch.guard(RevisionUnchanged(key, revision))
            if found.names.plural:
                yield Holder(f'CustomResourceDefinition "{key.name}"', found.group, found.names)


def accepted(crd: Object) -> _DefinedNames:
    """Return the group and the accepted names of a CRD."""
    names = status_of(crd).get("acceptedNames") or {}
    return _DefinedNames(crd["spec"]["group"], names_of(names) if names.get("plural") else Names())
