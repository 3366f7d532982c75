"""Merging: one configuration from what several workspaces give to the same copy, and where they differ.

The placement translator merges what `render` gave, customized. Invariants: the result depends on the sources alone,
in any order; one source is itself; nothing is lost of a map whose keys differ. Where sources give other values for one
thing, the one whose content changed last counts, of several the first by name of their workspace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from atoll.machinery.edge.names import PROJECTED, PROJECTED_VALUE, SOURCES
from atoll.machinery.meta.equality import same
from atoll.machinery.meta.objects import Object, annotations_of, finalizers_of, labels_of, owner_references_of

#: Parts that are merged by rules of their own, or that copies do not have.
_APART = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})


class Source(msgspec.Struct, frozen=True):
    """What one workspace gives to a copy, and the revision at which that changed last."""

    cluster: str
    obj: Object
    revision: int = 0


class Conflict(msgspec.Struct, frozen=True, order=True):
    """A field for which workspaces give several values, and the workspace whose value counts. It has no value."""

    field: str
    winner: str


class Merged(msgspec.Struct, frozen=True):
    """The configuration of a copy, and what its sources do not agree on, by field."""

    obj: Object
    conflicts: tuple[Conflict, ...] = ()


#: A workspace with what it gives for one thing.
_Given: TypeAlias = tuple[str, Any]


def merge(sources: Sequence[Source]) -> Merged:
    """Return the configuration of the copy that these sources give, with their list. There is at least one."""
    names = sorted(each.cluster for each in sources)
    if len(sources) == 1:
        return Merged(_marked(sources[0].obj, names))
    merging = _Merging(sorted(sources, key=lambda each: (-each.revision, each.cluster)))
    return Merged(_marked(merging.merged(), names), tuple(sorted(merging.conflicts)))


def _marked(obj: Object, sources: Sequence[str]) -> Object:
    metadata = obj["metadata"]
    labels = {**labels_of(obj), PROJECTED: PROJECTED_VALUE}
    annotations = {**annotations_of(obj), SOURCES: ",".join(sources)}
    return {**obj, "metadata": {**metadata, "labels": labels, "annotations": annotations}}


class _Merging:
    """Merges several sources, of which the first counts most."""

    def __init__(self, sources: list[Source]) -> None:
        self._sources = sources
        self.conflicts: list[Conflict] = []

    def merged(self) -> Object:
        first = self._sources[0].obj
        found: Object = {"apiVersion": first["apiVersion"], "kind": first["kind"], "metadata": self._metadata()}
        fields = dict.fromkeys(name for each in self._sources for name in each.obj)
        for name in fields:
            if name not in _APART and self._are_maps(name):
                found[name] = self._by_key(name, [each.obj.get(name) or {} for each in self._sources])
            elif name not in _APART or name == "spec":
                value = self._one(name, [(each.cluster, each.obj.get(name)) for each in self._sources])
                if value is not None:
                    found[name] = value
        # In the order in which the source that counts most has them.
        return {name: found[name] for name in dict.fromkeys((*first, *found)) if name in found}

    def _are_maps(self, name: str) -> bool:
        """Whether a part is a map wherever it is."""
        values = [each.obj.get(name) for each in self._sources]
        present = [value for value in values if value is not None]
        return bool(present) and all(isinstance(value, dict) for value in present)

    def _metadata(self) -> Object:
        first = self._sources[0].obj["metadata"]
        labels, annotations = (
            self._by_key(f"metadata.{field}", [each.obj["metadata"].get(field) or {} for each in self._sources])
            for field in ("labels", "annotations")
        )
        found: Object = {
            **{field: first[field] for field in ("name", "namespace") if field in first},
            "labels": labels,
            "annotations": annotations,
        }
        in_order = sorted(self._sources, key=lambda each: each.cluster)
        if finalizers := list(dict.fromkeys(one for each in in_order for one in finalizers_of(each.obj))):
            found["finalizers"] = finalizers
        if owners := self._owners():
            found["ownerReferences"] = owners
        return found

    def _owners(self) -> list[Object]:
        rows = [owner_references_of(each.obj) for each in self._sources]
        by_name = [
            {f"{one.get('apiVersion')}/{one.get('kind')}/{one.get('name')}": one for one in each} for each in rows
        ]
        return list(self._by_key("metadata.ownerReferences", by_name).values())

    def _by_key(self, path: str, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        given: dict[str, list[_Given]] = {}
        for source, part in zip(self._sources, parts, strict=True):
            for key, value in part.items():
                given.setdefault(key, []).append((source.cluster, value))
        return {key: self._one(f"{path}[{key}]", values) for key, values in given.items()}

    def _one(self, field: str, given: Iterable[_Given]) -> Any:
        """Return the first value; another one is a conflict."""
        (winner, value), *others = given
        if not all(same(value, other) for _, other in others):
            self.conflicts.append(Conflict(field, winner))
        return value
