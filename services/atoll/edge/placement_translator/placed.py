"""What the placement translator knows, for those who report on placed objects: questions, and no changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from atoll.edge.placement_translator.contents import Contents
from atoll.edge.placement_translator.projection import Projection
from atoll.edge.placement_translator.records import CopyRecords
from atoll.edge.placement_translator.topology import Topology
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.placements import UpsyncSet


class Placed(NamedTuple):
    """The parts of the translator that know."""

    topology: Topology
    contents: Contents
    projection: Projection
    records: CopyRecords

    def sources(self, mailbox: str, ref: ObjectRef) -> list[str]:
        """Return the workspaces that send an object to a mailbox."""
        return sorted(self.projection.copies.wanted_one(mailbox, ref))

    def sets(self, mailbox: str) -> Iterator[tuple[str, UpsyncSet]]:
        """Yield the sets of objects that come up into a mailbox, with their workspaces."""
        for cluster, names in self.topology.senders(mailbox).items():
            for placement in self.topology.placements(cluster):
                if placement.name in names:
                    for members in placement.upsync:
                        yield cluster, members

    def asking(self, mailbox: str, ref: ObjectRef) -> list[str]:
        """Return the workspaces into whose sets an object of a mailbox falls."""
        return sorted({cluster for cluster, members in self.sets(mailbox) if members.matches(ref)})
