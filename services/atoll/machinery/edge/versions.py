"""The version of an API group in one mailbox, on which the workspaces that send objects of it agree.

The placement translator calls `agree` for each group and mailbox. Invariant: the result depends on what is served and
on the former choice alone, never on the order of the workspaces.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from atoll.machinery.meta.versions import version_priority


class Offer(msgspec.Struct, frozen=True):
    """The versions that one workspace serves of a group, and the one that it prefers."""

    cluster: str
    served: frozenset[str]
    preferred: str


class Agreement(msgspec.Struct, frozen=True):
    """The version that counts, the first workspace that has it, and those without it, whose objects are not sent."""

    version: str
    first: str
    left: tuple[str, ...] = ()


def agree(offers: Sequence[Offer], former: str = "", usable: Collection[str] = ()) -> Agreement:
    """Return the version for a group that these workspaces send; there is at least one, and each serves some.

    `former` is the choice before. `usable` are the versions that the mailbox serves, where they are known: they count
    unless it has none of those on which the workspaces agree.
    """
    rest, left = sorted(offers, key=lambda each: each.cluster), list[str]()
    common = frozenset.intersection(*(each.served for each in rest))
    while not common:
        # The source whose highest version is the lowest; of several the last by name.
        lowest = max(rest, key=lambda each: (version_priority(highest(each.served)), each.cluster))
        rest.remove(lowest)
        left.append(lowest.cluster)
        common = frozenset.intersection(*(each.served for each in rest))
    common = common.intersection(usable) or common
    candidates = common.intersection(each.preferred for each in rest) or common
    version = former if former in candidates else highest(candidates)
    return Agreement(version, rest[0].cluster, tuple(sorted(left)))


def highest(versions: Collection[str]) -> str:
    """Return the highest version in Kubernetes' order."""
    return min(versions, key=version_priority)
