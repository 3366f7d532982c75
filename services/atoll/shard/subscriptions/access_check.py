"""Who may receive events of what: the decision about one subscription, from one snapshot.

`keeper` asks when a subscription is made and whenever something that the answer depends on has changed. It asks the
shard's own authorizer for `watch` on each resource in the whole cluster, so scopes, warrants, maximal permission
policies and required groups count as for a watch. An export's owner, who may `watch` its content, may have the export's
own resources in all clusters. Invariant: what is not granted is not selected; sealed types are selected without body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from atoll.machinery.apiserver.authentication.token_issuer import account_key
from atoll.machinery.apiserver.authorization.attributes import Attributes
from atoll.machinery.apiserver.authorization.authorizer import Authorizer
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import partial
from atoll.machinery.meta.names import SYSTEM_ADMIN, ResourceType
from atoll.machinery.meta.types import API_EXPORTS, SECRETS
from atoll.machinery.meta.user import CLUSTER_NAME, SERVICE_ACCOUNT_PREFIX, User, is_service_account
from atoll.machinery.meta.wellknown import APIS_GROUP
from atoll.machinery.storage.contract import Flag, GateState, Scope, Snapshot
from atoll.machinery.storage.pages import each_record
from atoll.machinery.stream.tenants.subscriptions import Refused, Selected, State
from atoll.virtualworkspaces.export_catalog import ExportCatalogs, ExportKey

#: Types whose objects the store seals: nobody outside reads their events' bodies.
_SEALED = frozenset({SECRETS.group_resource})
EXPIRED = "the credential that was shown has ended; ask for the subscription again with a valid one"
_WIDER = "watch in the whole workspace is needed; a right in one namespace or to named objects is too narrow"
_CLAIMED = "it is not one of the export's own resources; subscribe to a claimed one in each workspace"
_CLOSED: dict[GateState, tuple[State, str]] = {
    GateState.CLOSED: ("Gone", "the workspace is deleted"),
    GateState.INACTIVE: ("Revoked", "the workspace is inactive"),
    GateState.MOVING: ("Revoked", "the workspace is being moved"),
}


class Question(msgspec.Struct, frozen=True):
    """Who asks for events of what. With `identity`, of an export's resources in all clusters."""

    cluster: str
    user: User
    resources: tuple[str, ...]
    identity: str = ""
    full: bool = False


class AccessDecision(msgspec.Struct, frozen=True):
    """The decision, and the clusters from whose state it derives."""

    state: State
    reason: str
    selected: tuple[Selected, ...] = ()
    refused: tuple[Refused, ...] = ()
    sources: tuple[str, ...] = ()


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    identity_hash: str = ""


class _Export(msgspec.Struct, frozen=True):
    status: _Status = _Status()


_export = msgspec.json.Decoder(_Export)


class AccessCheck:
    """Decides for one shard. `published` says which types are on its stream of changes."""

    def __init__(self, catalogs: Catalogs, authorizer: Authorizer, published: Callable[[ResourceType], bool]) -> None:
        self._catalogs, self._authorizer, self._published = catalogs, authorizer, published
        self._offers = ExportCatalogs(catalogs)

    def may_enter(self, snapshot: Snapshot, user: User, cluster: str) -> bool:
        """Whether a user has access to a cluster at all."""
        attributes = Attributes(user=user, verb="get", cluster=cluster, path="/api")
        return self._is_open(snapshot, cluster) and self._authorizer.authorize(snapshot, attributes).allowed

    def decide(self, snapshot: Snapshot, question: Question) -> AccessDecision:
        """Decide. Raises KindsPending: then again, once they are loaded."""
        cluster, user = question.cluster, question.user
        if (closed := _CLOSED.get(snapshot.gate(cluster).state)) is not None:
            return AccessDecision(*closed, sources=(cluster,))
        sources = {cluster, SYSTEM_ADMIN, *_home(user)}
        if not _account_lives(snapshot, user):
            return AccessDecision("Revoked", "the service account is deleted", sources=tuple(sorted(sources)))
        find = self._of_export if question.identity else self._of_cluster
        caller = self._catalogs.shipped.caller
        caller.can_wait = True
        try:
            found = list(find(snapshot, question, sources))
        finally:
            caller.can_wait = False
        refused = [each for each in found if isinstance(each, Refused)]
        kept = tuple(dict.fromkeys(each for each in found if isinstance(each, Selected)))
        if not all(each.full for each in kept):
            # A consumer delivers all of its events with or without body.
            kept = tuple(msgspec.structs.replace(each, full=False) for each in kept)
        reason = "" if kept else "; ".join(f"{_text(each)}: {each.message}" for each in refused)
        state: State = "Active" if kept else "Revoked"
        return AccessDecision(state, reason, kept, tuple(refused), tuple(sorted(sources)))

    def may_pass_on(self, type: ResourceType) -> bool:
        """Whether another shard, which decides about an identity, may have events of its resource here."""
        return bool(type.identity) and self._published(type)

    def _is_open(self, snapshot: Snapshot, cluster: str) -> bool:
        return snapshot.gate(cluster).state is not GateState.CLOSED

    # --- one workspace ---

    def _of_cluster(self, snapshot: Snapshot, question: Question, sources: set[str]) -> Iterator[Selected | Refused]:
        catalog = self._catalogs.of(snapshot, question.cluster)
        for resource, group in _names(question):
            attributes = Attributes(
                user=question.user, verb="watch", cluster=question.cluster, group=group, resource=resource
            )
            sources |= self._authorizer.sources(snapshot, attributes)
            if not self._authorizer.authorize(snapshot, attributes).allowed:
                yield Refused(group, resource, "Forbidden", _WIDER)
            elif (kind := catalog.by_resource.get((group, resource))) is None or "watch" not in kind.verbs:
                yield Refused(group, resource, "NotFound", "the workspace does not serve it")
            else:
                yield self._selected(question, kind)

    def _selected(self, question: Question, kind: Kind) -> Selected | Refused:
        if kind.virtual is not None or not self._published(kind.type):
            return Refused(kind.group, kind.plural, "NotStreamed", "its changes are not on the stream")
        type = kind.type
        full = question.full and type.group_resource not in _SEALED
        return Selected(type.group, type.resource, type.identity, full)

    # --- an export ---

    def _of_export(self, snapshot: Snapshot, question: Question, sources: set[str]) -> Iterator[Selected | Refused]:
        kinds = {
            (kind.group, kind.plural): kind
            for export in self._exports(snapshot, question, sources)
            if (offer := self._offers.of(snapshot, export)) is not None
            for kind in offer.catalog.kinds.values()
            if (kind.group, kind.plural) in offer.own
        }
        reachable = bool(kinds)
        for resource, group in _names(question):
            kind = kinds.get((group, resource))
            if not reachable:
                message = "the identity is of no export here whose content may be watched (apiexports/content)"
                yield Refused(group, resource, "Forbidden", message)
            elif kind is None or kind.type.identity != question.identity:
                yield Refused(group, resource, "NotOfExport", _CLAIMED)
            else:
                yield self._selected(question, kind)

    def _exports(self, snapshot: Snapshot, question: Question, sources: set[str]) -> Iterator[ExportKey]:
        """Yield the exports of the identity in the cluster whose content the user may watch."""
        for record in each_record(snapshot, Scope(API_EXPORTS, question.cluster)):
            if _export.decode(record.value).status.identity_hash != question.identity:
                continue
            attributes = Attributes(
                user=question.user,
                verb="watch",
                cluster=question.cluster,
                group=APIS_GROUP,
                resource="apiexports",
                subresource="content",
                name=record.key.name,
            )
            sources |= self._authorizer.sources(snapshot, attributes)
            if self._authorizer.authorize(snapshot, attributes).allowed:
                yield ExportKey(question.cluster, record.key.name)


def _names(question: Question) -> Iterator[tuple[str, str]]:
    """Yield plural and group of each resource asked for."""
    for each in dict.fromkeys(question.resources):
        resource, _, group = each.partition(".")
        yield resource, group


def _text(refused: Refused) -> str:
    return ResourceType(refused.group, refused.resource).group_resource


def _home(user: User) -> tuple[str, ...]:
    """The home cluster of a service account."""
    return tuple(user.extra.get(CLUSTER_NAME, ())) if is_service_account(user.name) else ()


def _account_lives(snapshot: Snapshot, user: User) -> bool:
    """Whether the service account that a user is still exists. Of an account of another shard nothing is known here but
    the end of its token."""
    homes = _home(user)
    if len(homes) != 1:
        return not homes
    if snapshot.gate(homes[0]).state is GateState.CLOSED:
        return bool(snapshot.replicas.shard_of(homes[0]))
    namespace, _, name = user.name.removeprefix(SERVICE_ACCOUNT_PREFIX).partition(":")
    record = snapshot.get(account_key(homes[0], namespace, name))
    return record is not None and not record.flags & Flag.DELETING and partial.identity(record.value).uid == user.uid
