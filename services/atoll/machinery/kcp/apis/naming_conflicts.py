"""Who may have which names: plural, singular, short names, kind and list kind within a group of a logical cluster.

The planner of bindings and the controller of definitions ask here. Two kinds of a group that share a name could not
be told apart by kubectl, so the one that came first keeps it, and the other waits with the reason until it is free.
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
        """Names by which resources are asked for."""
        return frozenset({self.plural, self.singular, *self.short_names}) - {""}

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({self.kind, self.list_kind}) - {""}


class Holder(msgspec.Struct, frozen=True):
    """Somebody who holds names in a group. `who` as messages say it: `APIBinding "x" bound to ...`."""

    who: str
    group: str
    names: Names


def names_of(declared: Object) -> Names:
    """The names of a definition's or an APIResourceSchema's `spec.names`, with Kubernetes' defaults."""
    kind = str(declared.get("kind") or "")
    return Names(
        plural=str(declared.get("plural") or ""),
        singular=str(declared.get("singular") or kind.lower()),
        short_names=tuple(declared.get("shortNames") or ()),
        kind=kind,
        list_kind=str(declared.get("listKind") or (f"{kind}List" if kind else "")),
    )


def conflict(group: str, wanted: Names, holders: Iterable[Holder]) -> str:
    """Why names cannot be had, naming the first who holds one of them; empty where they are free."""
    for holder in holders:
        if holder.group == group and (field := _clash(wanted, holder.names)):
            return conflict_message(holder.who, field)
    return ""


def conflict_message(who: str, field: str) -> str:
    """kcp's words for a name that somebody else has: `spec.names.kind=Widget` is a `field`."""
    return f"naming conflict with {who}: {field} is forbidden"


def _clash(wanted: Names, held: Names) -> str:
    """The first of the wanted names that is held, as kcp names it; empty if none is."""
    for field in ("plural", "singular"):
        name = getattr(wanted, field)
        if name in held.resources:
            return f"spec.names.{field}={name}"
    if not held.resources.isdisjoint(wanted.short_names):
        return f"spec.names.shortNames=[{' '.join(wanted.short_names)}]"
    if wanted.kind in held.kinds:
        return f"spec.names.kind={wanted.kind}"
    return f"spec.names.listKind={wanted.list_kind}" if wanted.list_kind in held.kinds else ""
