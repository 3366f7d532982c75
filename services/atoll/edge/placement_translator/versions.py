"""The versions at which copies are written: those on which the workspaces agree that send to a mailbox.

`composition` asks here. The choice for a group stays while it is possible, over restarts too: it lies in an annotation
of the mailbox's list. A mailbox counts as serving what is asked of it until it answers that it does not; then what it
serves is read, and remembered until its definitions change. Memory: groups with several versions, and kinds that
mailboxes serve otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from atoll.edge.edge_data import Clusters
from atoll.edge.placement_translator.content import Kind
from atoll.machinery.client.discovery import served_kinds
from atoll.machinery.edge.versions import Agreement, Offer, agree, highest
from atoll.machinery.meta.status import ApiError

_NOTHING: Mapping[Kind, Sequence[str]] = {}


class Unserved(ApiError):
    """No version of a kind is served by a workspace and by a mailbox."""

    code, reason = 404, "VersionNotServed"


class VersionConflict(ApiError):
    """The workspaces that send a group have no version of it in common, and those that send an object do not count."""

    code, reason = 409, "VersionConflict"

    def __init__(self, message: str, winner: str) -> None:
        super().__init__(message)
        self.winner = winner


class Versions:
    """Versions of kinds in all mailboxes."""

    def __init__(self, base: Clusters) -> None:
        self._base = base
        self._served: dict[str, dict[Kind, tuple[str, ...]]] = {}
        #: Mailbox -> group with several versions -> what counts.
        self._agreed: dict[str, dict[str, Agreement]] = {}
        #: Mailbox -> what its list said when it was seen first.
        self._former: dict[str, dict[str, str]] = {}

    # --- the choice

    def recall(self, mailbox: str, text: str) -> None:
        """Take over the choice that the list of a mailbox has, unless there is one already."""
        if text and mailbox not in self._agreed:
            pairs = (each.partition("=") for each in text.split(",") if each)
            self._former[mailbox] = {group: version for group, _, version in pairs}

    def written(self, mailbox: str) -> str:
        """Return the choice as the list of a mailbox has it."""
        agreed = self._agreed.get(mailbox, {})
        return ",".join(f"{group}={each.version}" for group, each in sorted(agreed.items()))

    def settle(self, mailbox: str, sent: Mapping[str, Mapping[str, frozenset[str]]]) -> set[str]:
        """Choose versions of the groups that are sent; return the groups with another result than before.

        `sent` has, by group, the versions that each workspace serves.
        """
        before, after = self._agreed.get(mailbox, {}), dict[str, Agreement]()
        former = self._former.pop(mailbox, {}) | {group: each.version for group, each in before.items()}
        for group, served in sent.items():
            if len(frozenset().union(*served.values())) > 1:
                offers = [Offer(cluster, versions, highest(versions)) for cluster, versions in served.items()]
                after[group] = agree(offers, former.get(group, ""), self._usable(mailbox, group))
        if after:
            self._agreed[mailbox] = after
        else:
            self._agreed.pop(mailbox, None)
        return {group for group in before.keys() | after.keys() if before.get(group) != after.get(group)}

    def _usable(self, mailbox: str, group: str) -> frozenset[str]:
        """Return the versions of a group that a mailbox serves, as far as that is known."""
        known = [frozenset(each) for kind, each in self._served.get(mailbox, {}).items() if kind[0] == group]
        return frozenset.intersection(*known) if known else frozenset()

    def left(self, mailbox: str, group: str) -> tuple[str, ...]:
        """Return the workspaces that do not count for a group."""
        found = self._agreed.get(mailbox, {}).get(group)
        return found.left if found is not None else ()

    def choose(self, mailbox: str, kind: Kind, offered: Mapping[str, Sequence[str]]) -> Agreement:
        """Return the version for a copy of a kind that these workspaces serve at these, and which of them do not count.

        Raises Unserved, VersionConflict.
        """
        agreed, usable = self._agreed.get(mailbox, {}).get(kind[0]), self.served(mailbox, kind)
        if agreed is None and not usable and len(offered) == 1:
            ((cluster, versions),) = offered.items()
            return Agreement(versions[0], cluster)
        left = set(agreed.left).intersection(offered) if agreed is not None else set[str]()
        rest = {cluster: versions for cluster, versions in offered.items() if cluster not in left}
        if agreed is not None and not rest:
            text = f"workspace {agreed.first} has {agreed.version} of {kind[0]}, and no version of this workspace"
            raise VersionConflict(text, agreed.first)
        version = agreed.version if agreed is not None else ""
        if not all(version in each for each in rest.values()) or (usable and version not in usable):
            # The group has it and the kind does not.
            offers = [Offer(cluster, frozenset(each), each[0]) for cluster, each in rest.items()]
            found = agree(offers, version, usable)
            version, left = found.version, left.union(found.left)
        if usable and version not in usable:
            name = f"{kind[1]}.{kind[0]}".removesuffix(".")
            here, there = ", ".join(rest[min(rest)]), ", ".join(usable)
            raise Unserved(f"the workspace serves {name} at {here}, the mailbox at {there}")
        return Agreement(version, min(rest.keys() - left), tuple(sorted(left)))

    # --- what mailboxes serve

    async def read(self, mailbox: str, kind: Kind, version: str) -> bool:
        """Look up a kind of a mailbox that answered "not found"; return whether it serves other versions than this one.

        Raises ApiError, ClientError, TimeoutError.
        """
        found = (await served_kinds(self._base.cluster(mailbox))).get(kind)
        if found is None or version in found.versions:
            return False
        self._served[mailbox] = {**self._served.get(mailbox, {}), kind: found.versions}
        return True

    def served_otherwise(self, mailbox: str) -> Mapping[Kind, Sequence[str]]:
        """Return what a mailbox is known to serve otherwise than workspaces; another object whenever that changes."""
        return self._served.get(mailbox, _NOTHING)

    def served(self, mailbox: str, kind: Kind) -> Sequence[str]:
        """Return the versions of a kind that a mailbox serves otherwise than a workspace; none of another kind."""
        return self._served.get(mailbox, {}).get(kind, ())

    async def refresh(self, mailbox: str, offered: Mapping[Kind, Sequence[str]]) -> bool:
        """Look up what a mailbox serves of the kinds that workspaces offer; return whether it is something else.

        Raises ApiError, ClientError, TimeoutError.
        """
        kinds = await served_kinds(self._base.cluster(mailbox))
        found = {kind: kinds[kind].versions for kind in offered if kind in kinds}
        found = {kind: versions for kind, versions in found.items() if offered[kind][0] not in versions}
        before = self._served.pop(mailbox, {})
        if found:
            self._served[mailbox] = found
        return found != before

    def forget(self, mailbox: str) -> None:
        """A mailbox is gone."""
        for each in (self._served, self._agreed, self._former):
            each.pop(mailbox, None)
