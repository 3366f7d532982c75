"""Naming conflicts: plural, singular, short names, kind and list kind within a group of a logical cluster.

The binding planner and the CRD controller call this. A name of a group has one holder: the first keeps it, and the
second waits, with the conflict in its conditions, until the name is free.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from atoll.machinery.meta.objects import Object


class Names(msgspec.Struct, frozen=True):
    """The names of a kind, as definitions declare them."""

    plural: str = ""
    singular: str = ""
    short_names: tuple[str, ...] = ()
    kind: str = ""
    list_kind: str = ""

    @property
    def resources(self) -> frozenset[str]:
        """Return the resource names: plural, singular and short names."""
        return frozenset({self.plural, self.singular, *self.short_names}) - {""}

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({self.kind, self.list_kind}) - {""}


class Holder(msgspec.Struct, frozen=True):
    """A holder of names in a group. `who` is its text in messages: `APIBinding "x" bound to ...`."""

    who: str
    group: str
    names: Names


def names_of(declared: Object) -> Names:
    """Return the names in `spec.names` of a CRD or APIResourceSchema, with Kubernetes' defaults."""
    kind = str(declared.get("kind") or "")
    return Names(
        plural=str(declared.get("plural") or ""),
        singular=str(declared.get("singular") or kind.lower()),
        short_names=tuple(declared.get("shortNames") or ()),
        kind=kind,
        list_kind=str(declared.get("listKind") or (f"{kind}List" if kind else "")),
    )


def conflict(group: str, wanted: Names, holders: Iterable[Holder]) -> str:
    """Return the message for the first holder of one of the wanted names; empty where all are free."""
    for holder in holders:
        if holder.group == group and (field := _clash(wanted, holder.names)):
            return conflict_message(holder.who, field)
    return ""


def conflict_message(who: str, field: str) -> str:
    """Return kcp's message for a name that `who` holds; `field` is of the form `spec.names.kind=Widget`."""
    return f"naming conflict with {who}: {field} is forbidden"


def _clash(wanted: Names, held: Names) -> str:
    """Return the first wanted name that is held, as kcp's message names it; empty if none is."""
    for field in ("plural", "singular"):
        name = getattr(wanted, field)
        if name in held.resources:
            return f"spec.names.{field}={name}"
    if not held.resources.isdisjoint(wanted.short_names):
        return f"spec.names.shortNames=[{' '.join(wanted.short_names)}]"
    if wanted.kind in held.kinds:
        return f"spec.names.kind={wanted.kind}"
    return f"spec.names.listKind={wanted.list_kind}" if wanted.list_kind in held.kinds else ""
