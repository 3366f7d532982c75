"""The mailbox view: what the syncer of an edge cluster reads and writes in its mailbox.

    /services/mailbox/clusters/<mailbox>/apis/edge.kubestellar.io/v2alpha1/downsyncitems    everything that goes down
    /services/mailbox/clusters/<mailbox>/...                                                its objects, kind by kind

`framework` brings requests here. The view needs the verb `sync` on `syncerconfigs` in the mailbox, which is the only
right that its syncer has. `mailbox_rules` says what that stands for; everything else is forbidden, but that an account
renews its own token. Denatured kinds are served as what they are at the edge. Invariants: a credential that is revoked
or expires ends open watches too; a status brings where it is from (EDGE_REVISION) and no other metadata; the time
of the event loop that one user of a mailbox takes is bounded (`loop_time`), and so are its Events (`allowance`) and its
open watches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from msgspec.structs import replace

from atoll.machinery.apiserver.authorization.attributes import Attributes, Decision
from atoll.machinery.apiserver.authorization.authorizer import Authorizer
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Restrictions, View
from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.apiserver.catalog.edge_catalogs import MAX_CATALOGS
from atoll.machinery.apiserver.filtered_rows import Log, RowSource
from atoll.machinery.apiserver.request import Request, RequestScope, ScopeAuthorizer
from atoll.machinery.edge.associated_states import STATES
from atoll.machinery.edge.names import EDGE_REVISION, GROUP, MAILBOX_VIEW, VERSION
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import is_cluster_name
from atoll.machinery.meta.types import SERVICE_ACCOUNTS
from atoll.machinery.meta.user import CLUSTER_NAME, SERVICE_ACCOUNT_PREFIX, User
from atoll.machinery.storage.contract import Snapshot
from atoll.machinery.wire.exchange import HttpRequest
from atoll.virtualworkspaces.edge.allowance import Allowances, cost_of
from atoll.virtualworkspaces.edge.carried import CONFIGS, CarriedReader, Mailbox
from atoll.virtualworkspaces.edge.downsync_item import item_kind
from atoll.virtualworkspaces.edge.downsync_rows import DownsyncRows
from atoll.virtualworkspaces.edge.loop_time import WRITE_S, LoopTime
from atoll.virtualworkspaces.edge.mailbox_rows import MailboxRows
from atoll.virtualworkspaces.edge.mailbox_rules import EVENTS, ITEMS, LEASES, MailboxRules, verbs
from atoll.virtualworkspaces.edge.refusals import Refusals
from atoll.virtualworkspaces.edge.upsync_use import UpsyncUse
from atoll.virtualworkspaces.framework import READ_VERBS, Own, is_listed, view_kind

SERVICE = MAILBOX_VIEW
#: Most watches of a mailbox through the view that are open at a time, in each process: a syncer has one, and those of
#: connections that broke last until that is noticed.
MAX_WATCHES = 8
_TOKENS = ("", "serviceaccounts", "token")


class Credentials(Protocol):
    """The credentials by which users of requests were authenticated."""

    def is_still_valid(self, request: HttpRequest, user: User, view: View) -> bool:
        """Whether that of a request is still valid in a view."""

    def expires_s(self, request: HttpRequest, user: User) -> float:
        """When that of a request ends, in Unix seconds; 0 for never."""


class MailboxView:
    """`framework.Content`."""

    own_segments = 0

    def __init__(self, catalogs: Catalogs, authorizer: Authorizer, store: Log, credentials: Credentials) -> None:
        self._catalogs, self._authorizer, self._store = catalogs, authorizer, store
        self._credentials = credentials
        self._reader, self._use = CarriedReader(), UpsyncUse()
        refusals = Refusals()
        self.allowances, self.loop_time = Allowances(refusals), LoopTime(refusals)
        self._kept: LruCache[int, tuple[Catalog, Catalog]] = LruCache(MAX_CATALOGS)

    def opens(self, view: View, user: User, own: Own) -> bool:
        """Return whether the user holds the verb `sync` in the mailbox."""
        (cluster,) = own
        attributes = Attributes(
            user=user,
            verb="sync",
            cluster=cluster if is_cluster_name(cluster) else "",
            group=GROUP,
            version=VERSION,
            resource="syncerconfigs",
        )
        return self._authorizer.authorize(view, attributes).allowed

    def show(self, request: Request, snapshot: Snapshot, own: Own) -> RequestScope:
        """Return the scope of a request.

        Raises NotFound for a workspace without SyncerConfigs, TurnPending, TooManyRequests.
        """
        info, cluster = request.info, request.cluster
        if not cluster or not is_listed(info):
            raise errors.not_served()
        turns = self.loop_time.of(cluster, request.user.name)
        request.took = turns.took
        # Apart, so that a syncer with much to report is not taken for a silent one.
        if (info.group, info.resource) != LEASES:
            turns.take(request.http)
        if (info.group, info.resource, info.subresource) == _TOKENS:
            return self._renewal(request, snapshot, own)
        mailbox = self._mailbox(snapshot, cluster)
        if any(each not in mailbox.catalog.by_resource for each in CONFIGS):
            raise errors.not_served()
        kind = mailbox.catalog.find(info.group, info.version, info.resource)
        rules = MailboxRules(mailbox, self._reader, info, kind, self._use) if kind is not None else None
        # Behind all that a request is served again for, so that it takes once.
        if info.is_resource and info.verb not in READ_VERBS:
            turns.took(WRITE_S)
        if (cost := cost_of(request)) is not None:
            self.allowances.take(cluster, request.user.name, *cost)
        return RequestScope(
            authorize=self._authorizer_of(request, own, kind, rules),
            catalog=mailbox.catalog,
            restrictions=self._restrictions(mailbox, kind, rules),
            keeps_watches=False,
            most_watches=MAX_WATCHES,
            depends_on=(cluster,),
            expires_s=self._credentials.expires_s(request.http, request.user),
        )

    def _authorizer_of(
        self, request: Request, own: Own, kind: Kind | None, rules: MailboxRules | None
    ) -> ScopeAuthorizer:
        caller, info, cluster, http = request.user, request.info, request.cluster, request.http

        def authorize(view: View, verb: str) -> Decision:
            if not self.opens(view, caller, own) or not self._credentials.is_still_valid(http, caller, view):
                return Decision(False)
            if not info.is_resource:
                return Decision(verb == "get")
            if kind is None or rules is None:
                return Decision(False)
            served = self._mailbox(view, cluster).catalog.find(info.group, info.version, info.resource)
            is_as_before = served is not None and (served.type, served.mark) == (kind.type, kind.mark)
            return Decision(is_as_before and rules.allows(view, verb))

        return authorize

    def _renewal(self, request: Request, snapshot: Snapshot, own: Own) -> RequestScope:
        """Return the scope of a request for a token of an account of the mailbox, which the account itself may make."""
        caller, info, cluster, http = request.user, request.info, request.cluster, request.http
        name = f"{SERVICE_ACCOUNT_PREFIX}{info.namespace}:{info.name}"
        is_own = caller.name == name and tuple(caller.extra.get(CLUSTER_NAME, ())) == (cluster,)

        def authorize(view: View, verb: str) -> Decision:
            may_renew = is_own and verb == "create" and self._credentials.is_still_valid(http, caller, view)
            return Decision(may_renew and self.opens(view, caller, own))

        accounts = self._catalogs.of(snapshot, cluster).of_same_type(SERVICE_ACCOUNTS)
        return RequestScope(authorize=authorize, catalog=Catalog(accounts))

    def _restrictions(self, mailbox: Mailbox, kind: Kind | None, rules: MailboxRules | None) -> Restrictions:
        if kind is None or rules is None:
            return Restrictions()
        return Restrictions(
            rows=self._rows(mailbox, kind), write_rule=rules.check, is_data=True, status_annotations=(EDGE_REVISION,)
        )

    def _rows(self, mailbox: Mailbox, kind: Kind) -> RowSource | None:
        resource = kind.group, kind.plural
        if resource == ITEMS:
            return DownsyncRows(self._store, lambda view: self._mailbox(view, mailbox.cluster), self._reader)
        if resource in (LEASES, STATES, *EVENTS, *CONFIGS):
            return None
        return MailboxRows(self._store, mailbox, self._reader, kind.type)

    def _mailbox(self, view: View, cluster: str) -> Mailbox:
        """Return a mailbox with the kinds that it serves in a view."""
        own = self._catalogs.of(view, cluster)
        served = self._catalogs.edge.of(own)
        kept = self._kept.get(id(served))
        # The entry keeps the catalog alive, so an equal id means the same one.
        if kept is None:
            kept = served, Catalog(_kinds(own, served), served.terminating, served.unavailable)
            self._kept.put(id(served), kept)
        return Mailbox(cluster, kept[1])


def _kinds(own: Catalog, served: Catalog) -> Iterator[Kind]:
    """Yield the kinds of a mailbox, with what a syncer may do with them."""
    beside = (kind for kind in own.kinds.values() if (kind.group, kind.plural) in (LEASES, *EVENTS))
    for kind in (*served.kinds.values(), *beside):
        resource = kind.group, kind.plural
        if allowed := verbs(resource):
            subresources = tuple(
                replace(each, verbs=tuple(verb for verb in verbs(resource, each.name) if verb in each.verbs))
                for each in kind.subresources
                if verbs(resource, each.name)
            )
            yield view_kind(kind, tuple(verb for verb in kind.verbs if verb in allowed), subresources)
    yield item_kind()
