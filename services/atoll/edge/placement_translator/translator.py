"""The placement translator: joins its controllers, and hands each change to those that it concerns.

Control objects are watched by the export's view, mailboxes in their parent; workload objects and copies are told by the
changes streams (`atoll.edge.changes`), and read and written through the edge view, which has them as data. Invariants:
of a start everything is read, or what changed since this process wrote its records; what is in effect in a workspace is
neither read nor written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from functools import lru_cache
from typing import Any

from prometheus_client import CollectorRegistry

from atoll.edge.changes import Change, ChangeSource
from atoll.edge.edge_data import EdgeData
from atoll.edge.export_view import ExportView
from atoll.edge.heartbeats import HEALTHY
from atoll.edge.kinds import BINDINGS, LOCATIONS, PLACEMENTS, SLICES, SYNC_TARGETS, SYNCER_CONFIGS
from atoll.edge.mailboxes import Follow, is_mailbox, kept_workspace, mailbox_name
from atoll.edge.placement_translator.content import DEFINERS
from atoll.edge.placement_translator.contents import Contents
from atoll.edge.placement_translator.copy_metrics import CopyMetrics
from atoll.edge.placement_translator.object_events import ObjectEvents
from atoll.edge.placement_translator.observer import Observer
from atoll.edge.placement_translator.placed import Placed
from atoll.edge.placement_translator.projection import Projection
from atoll.edge.placement_translator.records import CopyRecords
from atoll.edge.placement_translator.reported_states import ReportedStates
from atoll.edge.placement_translator.statuses import Statuses
from atoll.edge.placement_translator.topology import Topology
from atoll.edge.store import EdgeStore
from atoll.machinery.client.client import Client
from atoll.machinery.client.informer import Informer, Parts, head, key_of, unmanaged
from atoll.machinery.client.resource import WORKSPACES, Resource
from atoll.machinery.edge.categories import BuiltIns
from atoll.machinery.edge.denaturing import served_type
from atoll.machinery.edge.names import GROUP, THE_ONE, VERSIONS, ObjectRef
from atoll.machinery.edge.syncerconfigs import brief, digest_of, number_of
from atoll.machinery.meta.conditions import FALSE, find
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.objects import Object, annotations_of, conditions_of, labels_of, spec_of, status_of
from atoll.machinery.meta.wellknown import RBAC_GROUP

KINDS = (PLACEMENTS, SLICES, SYNCER_CONFIGS, SYNC_TARGETS, LOCATIONS)
#: How long a mailbox without placements is followed after the last of it was withdrawn.
RELEASE_S = 1.0
#: How often a start looks whether NATS is reached before it reads everything, and how long between two looks.
LOOKS, LOOK_S = 200, 0.025
#: Phases of a Workspace before it was ready for the first time.
NEW = ("", "Scheduling", "Initializing")


class PlacementTranslator:
    """All of it. `client` is of its account, `parent` the workspace of all mailboxes."""

    name = "placement-translator"

    def __init__(self, client: Client, parent: str, export: str, built_ins: BuiltIns, store: EdgeStore) -> None:
        self._topology, records = Topology(), CopyRecords(store)
        self.view = ExportView(client, export, KINDS, self._control_changed, keep=_KEPT)
        self._topology.has_read, self._topology.is_nowhere = self.view.has_read, self.view.is_nowhere
        workspaces = client.cluster(parent).reduced(Parts)
        self.mailboxes = Informer(workspaces, WORKSPACES, self._workspace_changed, kept_workspace)
        data = EdgeData(client, self.view)
        self._contents = Contents(data, self._topology, built_ins, records, self._content_changed)
        self._reported = ReportedStates(data, self._topology, self._contents, records)
        self._statuses = Statuses(self.view, self._topology, self._contents)
        self._events = ObjectEvents(self.view, client, self._contents)
        sources = self._topology, self._contents, records
        self._projection = Projection(data, sources, self._projected, self._events.tell)
        self._statuses.projection = self._projection
        self._projection.released = self._mailbox_released
        self._records = records
        #: Who is told what is learned of placed objects.
        self.observer = Observer()
        self._projection.listing.associated = self._associated
        self._projection.parts = lambda mailbox: self._configs.get(mailbox, {}).values()
        self._working = self._contents, self._projection, self._reported, self._statuses
        self.controllers = (*self._working, self._events)
        self._follow: Follow | None = None
        self._is_follow_due = False
        #: The changes since the records were written, if nobody else wrote since; None if a start reads everything.
        self._resumed: ChangeSource | None = None
        #: Mailboxes that the records are about.
        self._recorded: set[str] = set()
        #: Names of mailboxes that were seen before they were ready: nobody wrote a copy into them.
        self._new: set[str] = set()
        #: SyncerConfigs by cluster and name.
        self._configs: dict[str, dict[str, Object]] = {}
        #: Clusters whose list nobody has written yet.
        self._unwritten: set[str] = set()

    @property
    def placed(self) -> Placed:
        """What is known of placed objects, for those who report on them."""
        return Placed(self._topology, self._contents, self._projection, self._records)

    def register(self, registry: CollectorRegistry) -> None:
        """Serve the metrics of copies."""
        CopyMetrics(self._projection, registry)

    def watches(self) -> list[Coroutine[Any, Any, None]]:
        """Return what to run in the background."""
        return [self.view.run(), self.mailboxes.run()]

    def resume(self, source: ChangeSource) -> None:
        """Be told of the recorded mailboxes from the stored positions on, which a start then need not read.

        Call it before the source runs, in a process that wrote into them last.
        """
        self._resumed, self._recorded = source, self._records.swept()
        source.follow(self, self._recorded)

    async def start(self, follow: Follow | None) -> None:
        """Wait until all placements and mailboxes were seen, then follow them and read all, or what changed."""
        await self.view.complete.wait()
        await self.mailboxes.synced.wait()
        is_continuous = await self._is_continuous()
        there = {spec_of(each).get("cluster") for each in self.mailboxes.objects.values()}
        for gone in self._recorded - there:
            self._projection.forget(gone)
            self._recorded.discard(gone)
        self._follow = follow
        self._topology.complete.set()
        if is_continuous:
            self._contents.reread_all()
            self._projection.resume_all()
        else:
            self.reread("")
        self._follow_all()
        # Their last placement went while nothing ran.
        for cluster in self._records.reporting() - self._topology.workspaces():
            self._reported.look_at_all(cluster)

    async def _is_continuous(self) -> bool:
        """Whether all that changed in the recorded mailboxes is told: NATS is reached, and there was no gap."""
        for _ in range(LOOKS):
            if self._resumed is None or not self._resumed.interruption:
                break
            await asyncio.sleep(LOOK_S)
        return self._resumed is not None and not self._resumed.interruption

    # --- changes of workload objects and of copies

    @property
    def is_idle(self) -> bool:
        """Whether all that was told is done."""
        is_done = self._projection.is_idle and not any(len(each.queue) for each in self._working)
        return is_done and self._topology.complete.is_set()

    def reread(self, shard: str) -> None:
        """Anything may have changed."""
        self._resumed = None
        self._contents.reread_all()
        self._projection.reread_all()
        self.observer.reread()

    def changed(self, change: Change) -> None:
        """An object of a workspace with placements changed, or of a mailbox."""
        if served_type(ResourceType(change.group, change.resource, change.identity)) is None:
            # It is in effect there. What the account may read is RBAC's.
            if change.group == RBAC_GROUP:
                self._contents.reread(change.cluster)
            return
        is_mailbox = self._topology.is_mailbox(change.cluster) or change.cluster in self._recorded
        if change.group == GROUP:
            self.observer.own_changed(change)
            if is_mailbox:
                return
        ref = ObjectRef(change.group, change.resource, change.namespace, change.name)
        if not is_mailbox:
            self._contents.object_changed(change.cluster, ref)
            return
        if ref.kind in DEFINERS:
            self._projection.due(change.cluster).is_redefined = True
            self._projection.wake(change.cluster)
        self._projection.changed(change.cluster, ref, 0 if change.deleted else change.revision)

    # --- changes of control objects

    def _control_changed(self, kind: Resource, old: Object | None, new: Object | None) -> None:
        cluster, _, name = key_of(new or old or {})
        if kind == PLACEMENTS:
            self._placement_changed(cluster, name, new)
        elif kind == SLICES:
            for (_, placement), names in self._topology.set_slice(cluster, old, new).items():
                mailboxes = [mailbox for each in names if (mailbox := self._topology.cluster_of(each))]
                self._moved(mailboxes)
                self._reported.look_at_all(cluster)
                self._statuses.look(cluster, [placement])
                self.observer.placement_changed(cluster, placement, mailboxes)
            self._follow_all()
        elif kind == SYNCER_CONFIGS:
            self._config_changed(cluster, old, new)
        elif kind == SYNC_TARGETS:
            self._target_changed(mailbox_name(cluster, (new or old or {})["metadata"]["uid"]), new)
        elif kind == LOCATIONS:
            if self._topology.set_location((cluster, name), new):
                self._relocated(self._topology.mailboxes_at((cluster, name)))
        elif kind == BINDINGS:
            # Its workspace may be reached from now on.
            self._statuses.look(cluster, self._topology.names(cluster))

    def _target_changed(self, mailbox: str, new: Object | None) -> None:
        heartbeat = find(conditions_of(new), HEALTHY) if new is not None else None
        is_silent = heartbeat is not None and heartbeat["status"] == FALSE
        if self._topology.set_silent(mailbox, is_silent):
            self._statuses.look_at_mailbox(self._topology.cluster_of(mailbox))
            self.observer.silence_changed(self._topology.cluster_of(mailbox))
        is_present = new is not None and "deletionTimestamp" not in new["metadata"]
        cluster = self._topology.cluster_of(mailbox)
        if self._topology.set_target(mailbox, present=is_present) and self._projection.state(cluster) is not None:
            self._wake([cluster])

    def _placement_changed(self, cluster: str, name: str, new: Object | None) -> None:
        before = self._topology.mailboxes(cluster, [name])
        if self._topology.set_placement(cluster, name, new):
            mailboxes = self._topology.mailboxes(cluster, [name])
            # They are woken once the workspace was read.
            for mailbox in before | mailboxes:
                self._projection.due(mailbox).is_moved = True
            self._follow_all()
            if self._topology.complete.is_set():
                self._contents.reread(cluster)
            self.observer.placement_changed(cluster, name, mailboxes)
        self._statuses.look(cluster, [name])

    def _config_changed(self, cluster: str, old: Object | None, new: Object | None) -> None:
        name = (new or old or {})["metadata"]["name"]
        if new is not None:
            self._configs.setdefault(cluster, {})[name] = new
        elif self._configs.get(cluster, {}).pop(name, None) is not None and not self._configs[cluster]:
            del self._configs[cluster]
        if name == THE_ONE:
            self._unwritten.discard(cluster)
            if new is not None and not number_of(new):
                self._unwritten.add(cluster)
                self._list_new(cluster)
            if new is not None:
                self._projection.copies.versions.recall(cluster, annotations_of(new).get(VERSIONS, ""))
            self._statuses.set_report(cluster, new)
            self.observer.report_changed(cluster, new)
        is_another = old is None or new is None or _content(old) != _content(new)
        if is_another and self._topology.is_mailbox(cluster):
            self._projection.parts_changed(cluster)

    def _workspace_changed(self, old: Object | None, new: Object | None) -> None:
        found = new or old or {}
        name, cluster = found["metadata"]["name"], ""
        is_present = new is not None and "deletionTimestamp" not in new["metadata"]
        phase = status_of(found).get("phase", "")
        if is_present and is_mailbox(found) and phase == "Ready":
            cluster = spec_of(found)["cluster"]
        self._note_empty(name, cluster, is_new=is_present and phase in NEW)
        before = self._topology.set_mailbox(name, cluster)
        if before == cluster:
            return
        if before:
            self._projection.forget(before)
            self._recorded.discard(before)
            self.observer.mailbox_gone(before)
        for sender, placements in self._topology.senders(cluster).items():
            self._statuses.look(sender, placements)
            self._reported.look_at_all(sender)
        if self._topology.senders(cluster):
            self._moved([cluster])
        self._list_new(cluster)
        self._follow_all()

    def _note_empty(self, name: str, cluster: str, *, is_new: bool) -> None:
        """Take down that a mailbox has no copies when it is ready, if it was seen to be made.

        One with a list is none that was made now: an earlier Workspace was put back.
        """
        if cluster and name in self._new and not any(map(number_of, self._configs.get(cluster, {}).values())):
            self._records.put_swept(cluster)
        (self._new.add if is_new else self._new.discard)(name)

    def _list_new(self, cluster: str) -> None:
        """Write the list of a new mailbox, also if it names nothing: until then its edge deletes nothing."""
        if cluster in self._unwritten and self._topology.is_mailbox(cluster):
            self._projection.due(cluster).is_unlisted = True
            self._wake([cluster])

    # --- what controllers tell each other

    def _associated(self, mailbox: str) -> list[Object] | None:
        return self.observer.associated(mailbox)

    def _content_changed(self, cluster: str, changed: Mapping[ObjectRef, set[str]]) -> None:
        content, sent = self._contents.get(cluster), dict[frozenset[str], list[ObjectRef]]()
        for ref, placements in changed.items():
            sent.setdefault(frozenset(placements), []).append(ref)
            self._reported.look(cluster, ref)
        for names, refs in sent.items():
            edited = content.edited.intersection(refs) if content is not None else ()
            for mailbox in self._topology.mailboxes(cluster, names):
                self._projection.due(mailbox).add_sent(refs, edited)
        placed = self._topology.names(cluster)
        self._wake(self._topology.mailboxes(cluster, placed))
        self._wake(self._projection.moved())
        self._statuses.look(cluster, placed)
        self.observer.content_changed(cluster, changed)

    def _projected(self, mailbox: str, refs: Iterable[ObjectRef]) -> None:
        for cluster in self._topology.senders(mailbox):
            for ref in refs:
                self._reported.look(cluster, ref)
        self._statuses.look_at_mailbox(mailbox)
        self.observer.copies_changed(mailbox, refs)

    def _moved(self, mailboxes: Iterable[str]) -> None:
        """Other placements have these as destinations."""
        found = [each for each in mailboxes if each]
        for each in found:
            self._projection.due(each).is_moved = True
        self._wake(found)

    def _relocated(self, mailboxes: Iterable[str]) -> None:
        """The Location of these has other parameters."""
        for mailbox in mailboxes:
            for cluster in self._topology.senders(mailbox):
                content = self._contents.get(cluster)
                for ref in content.located() if content is not None else ():
                    self._projection.due(mailbox).add(ref, is_live_due=False)
        self._wake(mailboxes)

    def _wake(self, mailboxes: Iterable[str]) -> None:
        if self._topology.complete.is_set():
            for each in mailboxes:
                self._projection.wake(each)

    def _mailbox_released(self) -> None:
        """Follow what is left, once for all that are released now."""
        if not self._is_follow_due:
            self._is_follow_due = True
            asyncio.get_running_loop().call_later(RELEASE_S, self._follow_all)

    def _follow_all(self) -> None:
        """Follow workspaces with placements, and mailboxes that are or were destinations."""
        self._is_follow_due = False
        if self._follow is None:
            return
        mailboxes = {each for each in self._topology.all_mailboxes() if self._topology.is_sent_to(each)}
        self._follow(self, self._topology.workspaces() | mailboxes | self._projection.active())


def _content(config: Object) -> tuple[object, ...]:
    """Return what counts of a SyncerConfig: not its status."""
    return digest_of(config), labels_of(config), annotations_of(config)


def _kept_config(obj: Object) -> Object:
    return brief(unmanaged(obj))


def _kept_target(obj: Object) -> Object:
    """Return whether a SyncTarget goes, and whether its syncer is heard of."""
    heartbeat = find(conditions_of(obj), HEALTHY)
    status = {} if heartbeat is None else {"conditions": _health(heartbeat["status"])}
    return {**head(obj, "uid", "deletionTimestamp"), "status": status}


@lru_cache
def _health(status: str) -> list[Object]:
    return [{"type": HEALTHY, "status": status}]


def _kept_location(obj: Object) -> Object:
    """Return the parameters of a Location."""
    return head(obj, "labels", "annotations")


#: What counts here of what there is one of for each edge cluster.
_KEPT = {SYNCER_CONFIGS: _kept_config, SYNC_TARGETS: _kept_target, LOCATIONS: _kept_location}
