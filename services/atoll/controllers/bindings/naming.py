"""Who holds names in a logical cluster: bindings by what they bound, definitions by what they were accepted with.

The binding controller asks before it binds. Invariant: whoever is found here is guarded in the batch that was planned
with the answer, so that names are never given twice, whichever order the writes come in; who comes new has to take a
lock, and that shows in the LogicalCluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.catalog.revision_cache import RevisionCache
from atoll.machinery.apiserver.writing.batch import Batch
from atoll.machinery.kcp.apis import apibindings
from atoll.machinery.kcp.apis.naming_conflicts import Holder, Names, names_of
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.types import API_BINDINGS, CRDS
from atoll.machinery.storage.contract import RevisionUnchanged, Scope
from atoll.machinery.storage.pages import each_record, each_revision
from atoll.tenancy.bound_definitions import BoundCrds

#: Definitions whose names are remembered.
MAX_KNOWN = 8192


class _DefinedNames(msgspec.Struct, frozen=True):
    """Group of a definition, and the names it was accepted with, if any."""

    group: str
    names: Names


class HeldNames:
    """Holders of names, read again only as far as something was written."""

    def __init__(self, bound: BoundCrds) -> None:
        self._bound = bound
        self._known = RevisionCache(accepted, MAX_KNOWN)

    def beside(self, batch: Batch, cluster: str, binding: str, groups: Collection[str]) -> list[Holder]:
        """Who holds names of some groups in a cluster beside a binding; the batch guards that it is still so."""
        found: list[Holder] = []
        for record in each_record(batch, Scope(API_BINDINGS, cluster)):
            if record.key.name != binding:
                held = [each for each in self._by(batch, decode(record.value)) if each.group in groups]
                if held:
                    batch.guard(RevisionUnchanged(record.key, record.revision))
                found.extend(held)
        return [*found, *self._definitions(batch, cluster, groups)]

    def _by(self, view: View, binding: Object) -> Iterator[Holder]:
        for item in (binding.get("status") or {}).get("boundResources") or ():
            crd = self._bound.get(view, item["schema"]["UID"])
            names = crd.names if crd is not None else Names(plural=item["resource"])
            yield Holder(apibindings.holder_name(binding), item.get("group") or "", names)

    def _definitions(self, batch: Batch, cluster: str, groups: Collection[str]) -> Iterator[Holder]:
        for key, revision in each_revision(batch, Scope(CRDS, cluster)):
            found = self._known.of(batch, key, revision)
            if found.group not in groups:
                continue
            batch.guard(RevisionUnchanged(key, revision))
            if found.names.plural:
                yield Holder(f'CustomResourceDefinition "{key.name}"', found.group, found.names)


def accepted(crd: Object) -> _DefinedNames:
    """Group and accepted names of a definition; no names where it was accepted with none."""
    names = (crd.get("status") or {}).get("acceptedNames") or {}
    return _DefinedNames(crd["spec"]["group"], names_of(names) if names.get("plural") else Names())
