"""Types of kinds that a definition serves in one of Kubernetes' groups: its schema, and Kubernetes' own type.

The catalogue's merge types pair them for strategic merge patches, which clients compute by Kubernetes' own types.
Invariant: where the definition's schema declares how a list merges, that holds.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from atoll.machinery.patch.structuredmerge.topology import Type


class PairedType(NamedTuple):
    """One place of both; None where one has no such place."""

    declared: Type | None
    native: Type | None

    @property
    def patch_merges(self) -> bool:
        return self._is_declared or bool(self.native and self.native.patch_merges and not self.patch_replaces)

    @property
    def patch_key(self) -> str:
        if self._is_declared and self.declared is not None:
            return self.declared.patch_key
        return self.native.patch_key if self.native is not None else ""

    @property
    def patch_replaces(self) -> bool:
        return self.declared is not None and self.declared.patch_replaces

    @property
    def _is_declared(self) -> bool:
        return self.declared is not None and self.declared.patch_merges

    @property
    def element(self) -> PairedType:
        return PairedType(*(each.element if each is not None else None for each in self))

    def field(self, name: str) -> PairedType:
        return PairedType(*(each.field(name) if each is not None else None for each in self))

    def declares(self, name: str) -> bool:
        return any(each is not None and each.declares(name) for each in self)


class PairedSchema(NamedTuple):
    """A kind as a tree of PairedTypes."""

    root: PairedType


PatchType: TypeAlias = Type | PairedType
