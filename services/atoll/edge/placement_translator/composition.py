"""What a copy in a mailbox is to be: the version on which its workspaces agree, their renderings, merged.

`copies` applies it. Invariants: `Wanted.digest` tells a copy by what it depends on, without a read; what the workspaces
do not agree on is in `conflicts` from the first look at a copy on; a definition stays that of the workspace that gave
it first, as another one could take the objects of its kinds along.
"""

from __future__ import annotations

import sys
from collections.abc import Collection

import msgspec

from atoll.edge.placement_translator.conflicts import Conflicts
from atoll.edge.placement_translator.content import DEFINERS, Item
from atoll.edge.placement_translator.contents import Contents
from atoll.edge.placement_translator.definitions import Definitions
from atoll.edge.placement_translator.records import CopyRecords
from atoll.edge.placement_translator.rendering import Rendering, Tell, Unrendered
from atoll.edge.placement_translator.topology import Topology
from atoll.edge.placement_translator.versions import Unserved, VersionConflict, Versions
from atoll.machinery.edge.applied import digest
from atoll.machinery.edge.merging import Conflict, Source, merge
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import ApiError

_DEFINITIONS = DEFINERS[0]
#: Fields of conflicts that are about no field of an object.
_VERSION, _DEFINITION = "apiVersion", "definition"

#: Answers of a server to an object that does not fit its schema or its scope.
_MISFIT_CODES = (400, 404, 405, 422, 500)


class Wanted(msgspec.Struct, frozen=True):
    """What a copy comes from. `sources` count for it, `clusters` are all that send it."""

    sources: dict[str, Item]
    clusters: tuple[str, ...]
    version: str
    digest: str
    holder: str = ""
    conflicts: tuple[Conflict, ...] = ()


class Composed(msgspec.Struct, frozen=True):
    """The configuration of a copy and the workspace that holds it.

    `renderings` are to be kept once the mailbox took it. With a `problem` some source is not as it says now; of those
    in `unknown` nothing is in the configuration.
    """

    obj: Object
    holder: str
    renderings: dict[str, bytes]
    problem: Unrendered | None = None
    unknown: frozenset[str] = frozenset()


class Composition:
    """Compositions of all copies. Methods raise ApiError, ClientError and TimeoutError."""

    def __init__(
        self, versions: Versions, topology: Topology, contents: Contents, records: CopyRecords, tell: Tell
    ) -> None:
        self._versions, self._topology, self._contents, self._records = versions, topology, contents, records
        self._rendering = Rendering(topology, contents, records, tell)
        self.conflicts = Conflicts(tell)
        self.definitions = Definitions(topology, contents, self.conflicts)
        #: Mailbox -> what the last agreement on versions came from.
        self._bases: dict[str, tuple[object, object]] = {}

    def settle(self, mailbox: str) -> set[str]:
        """Agree on the versions of all groups that are sent; return the groups with another result than before.

        It costs a comparison for each workspace that sends, unless one of them offers something else than before.
        """
        offers = {
            cluster: (frozenset(placements), content.offers)
            for cluster, placements in self._topology.senders(mailbox).items()
            if (content := self._contents.get(cluster)) is not None
        }
        basis = offers, self._versions.served_otherwise(mailbox)
        if self._bases.get(mailbox) == basis:
            return set()
        sent: dict[str, dict[str, frozenset[str]]] = {}
        for cluster, (placements, offered) in offers.items():
            for group, versions in offered.versions.items():
                if versions and not placements.isdisjoint(offered.placements[group]):
                    sent.setdefault(group, {})[cluster] = versions
        if offers:
            self._bases[mailbox] = basis
        else:
            self._bases.pop(mailbox, None)
        return self._versions.settle(mailbox, sent)

    def forget(self, mailbox: str) -> None:
        """A mailbox is gone."""
        self._bases.pop(mailbox, None)
        self._versions.forget(mailbox)
        self.conflicts.forget(mailbox)
        self.definitions.forget(mailbox)

    def wanted(self, mailbox: str, ref: ObjectRef, senders: dict[str, Item]) -> Wanted:
        """Return what the copy of an object comes from that these workspaces send."""
        clusters = tuple(sorted(senders))
        try:
            chosen = self._versions.choose(mailbox, ref.kind, {name: item.versions for name, item in senders.items()})
        except VersionConflict as error:
            self.conflicts.put(mailbox, ref, clusters, [Conflict(_VERSION, error.winner)])
            raise
        left = self._left(mailbox, ref, senders, chosen.left)
        sources = {name: item for name, item in senders.items() if name not in left}
        record = self._records.get(mailbox, ref) if ref.kind in DEFINERS else None
        holder = record.holder if record is not None and record.holder in sources else ""
        parts: dict[str, object] = {
            name: self._rendering.digest(mailbox, name, item, chosen.version) for name, item in sources.items()
        }
        if len(sources) > 1:
            parts["order"] = [holder, {name: item.revision for name, item in sources.items()}]
        conflicts = (Conflict(_VERSION, chosen.first),) if left else ()
        return Wanted(sources, clusters, chosen.version, digest(parts), holder, conflicts)

    def _left(self, mailbox: str, ref: ObjectRef, senders: dict[str, Item], left: tuple[str, ...]) -> set[str]:
        """Return the workspaces that do not count; those that do not for a group give no definitions for it either."""
        if ref.kind == _DEFINITIONS:
            left = self._versions.left(mailbox, defined_group(ref))
        return set(left) if senders.keys() - left else set()

    def is_compared(self, mailbox: str, ref: ObjectRef, wanted: Wanted) -> bool:
        """Whether the conflicts about a copy were found since the start."""
        return len(wanted.clusters) == 1 or self.conflicts.has_seen(mailbox, ref)

    async def composed(self, mailbox: str, ref: ObjectRef, wanted: Wanted) -> Composed | None:
        """Return what a copy is to be; None if all its sources are gone. Raises Unrendered if none can be rendered."""
        sources, kept, unknown = list[Source](), dict[str, bytes](), set[str]()
        problem = None
        for cluster, item in wanted.sources.items():
            version = wanted.version if wanted.version in item.versions else ""
            given = await self._rendering.render(mailbox, cluster, ref, version)
            problem = problem or given.problem
            if given.obj is not None:
                revision = sys.maxsize if cluster == wanted.holder else item.revision
                sources.append(Source(cluster, given.obj, revision))
            elif given.problem is not None:
                unknown.add(cluster)
            if given.customized:
                kept[cluster] = given.customized
        if not sources:
            if problem is not None:
                raise problem
            # It is told soon.
            return None
        merged = merge(sources)
        # Only the mailbox can say that it fits.
        misfits = [each for each in self.conflicts.found(mailbox, ref) if each.field == _DEFINITION]
        found = {*wanted.conflicts, *merged.conflicts, *misfits, *self.definitions.contested(mailbox, ref)}
        self.conflicts.put(mailbox, ref, wanted.clusters, found)
        first = min(sources, key=lambda each: (-each.revision, each.cluster))
        return Composed(merged.obj, first.cluster if ref.kind in DEFINERS else "", kept, problem, frozenset(unknown))

    def refused(self, mailbox: str, ref: ObjectRef, clusters: Collection[str]) -> None:
        """A mailbox refuses a copy: if its kind has the definition of another workspace, that is a conflict."""
        winners = self.definitions.winners(mailbox, ref.kind)
        if clusters and not winners.issubset(clusters):
            known = self.conflicts.found(mailbox, ref)
            self.conflicts.put(mailbox, ref, clusters, {*known, *(Conflict(_DEFINITION, each) for each in winners)})

    def accepted(self, mailbox: str, ref: ObjectRef, clusters: Collection[str]) -> None:
        """A mailbox has a copy that it refused before."""
        known = self.conflicts.found(mailbox, ref)
        if any(each.field == _DEFINITION for each in known):
            self.conflicts.put(mailbox, ref, clusters, [each for each in known if each.field != _DEFINITION])


def defined_group(ref: ObjectRef) -> str:
    """Return the API group of an object, or the one that a definition defines."""
    return ref.name.partition(".")[2] if ref.kind == _DEFINITIONS else ref.group


def is_misfit(error: ApiError) -> bool:
    """Whether a mailbox may have refused a copy because its kind is defined otherwise."""
    return error.code in _MISFIT_CODES and not isinstance(error, Unrendered | Unserved)
