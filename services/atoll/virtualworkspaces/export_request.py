"""One request through the view of an APIExport: its authorization, and the conditions of its writes.

`apiexport` makes an ExportRequest of every request. The pipeline calls it when the request arrives, each time a write
is planned and, for open watches, whenever an input of its decision changed. It keeps no state: every answer is read
from the view passed in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from atoll.machinery.apiserver.authorization.attributes import (
    Attributes,
    Decision,
    Outcome,
    Step,
    attributes_of,
    with_verb,
)
from atoll.machinery.apiserver.authorization.authorizer import Authorizer
from atoll.machinery.apiserver.authorization.refusal import ACCESS_DENIED
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.request import Request
from atoll.machinery.kcp.apis import permission_claims
from atoll.machinery.kcp.apis.permission_claims import Claim
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.names import SYSTEM_ADMIN
from atoll.machinery.meta.objects import Object, labels_of
from atoll.machinery.meta.selectors import LabelSelector
from atoll.machinery.meta.user import User
from atoll.machinery.meta.wellknown import APIS_GROUP
from atoll.machinery.storage.contract import Guard
from atoll.virtualworkspaces.accepted_claims import AcceptedClaims, AcceptedClaimsReader
from atoll.virtualworkspaces.export_catalog import BINDINGS, ExportCatalog, ExportCatalogs, ExportKey, Name
from atoll.virtualworkspaces.export_user import acting

_BOUND, _CONTENT, _POLICY = "boundapi", "content", "maxpermissionpolicy"


class Sources(msgspec.Struct, frozen=True):
    """The inputs of export requests."""

    offers: ExportCatalogs
    consents: AcceptedClaimsReader
    authorizer: Authorizer

    def may_reach_content(self, view: View, user: User, export: ExportKey, verb: str) -> bool:
        """Return whether the user may enter the export's workspace and holds a verb on the export's content there."""
        attributes = Attributes(
            user=user,
            verb=verb,
            cluster=export.cluster,
            group=APIS_GROUP,
            version="v1alpha2",
            resource="apiexports",
            subresource="content",
            name=export.name,
        )
        return self.authorizer.authorize(view, attributes, anywhere=True).allowed


class ExportRequest:
    """One request of one caller.

    `kind` is the kind that a request over all clusters is served as, None for discovery.
    """

    def __init__(self, sources: Sources, request: Request, export: ExportKey, kind: Kind | None) -> None:
        self._sources, self._request, self._export = sources, request, export
        self._caller, self._kind = request.user, kind

    @property
    def _name(self) -> Name:
        return self._request.info.group, self._request.info.resource

    def depends_on(self, offer: ExportCatalog) -> tuple[str, ...]:
        """Return the clusters whose exports and RBAC the decision depends on.

        The RBAC of the request's own counts for a user for whom the caller acts: the caller's warrant is always good.
        """
        claimed = offer.claimed.get(self._name)
        owners = claimed.owners if claimed is not None else ()
        own = [self._request.cluster] if self._request.acts_for is not None else []
        return tuple({SYSTEM_ADMIN, self._export.cluster, *(owner.cluster for owner in owners), *own})

    def labels(self, view: View, offer: ExportCatalog) -> LabelSelector | None:
        """Return the selector of the visible objects; None for all objects of a kind.

        Bindings to the export are always visible, all bindings of a workspace only if claimed and accepted. In a
        workspace a claim shows only what it selects now, even if other objects still carry its label.
        """
        claimed, cluster = offer.claimed.get(self._name), self._request.cluster
        if not cluster or (claimed is None and self._name != BINDINGS):
            return claimed.wide if claimed is not None else offer.bindings if self._name == BINDINGS else None
        consent, verb = self._sources.consents.of(view, cluster, self._export, offer), self._request.info.verb
        claim = consent.claim(claimed.key) if consent is not None and claimed is not None else None
        if self._name == BINDINGS and (claim is None or not claim.allows(verb)):
            return offer.bindings
        selector = claimed.selector if claimed is not None else None
        return _narrowed(selector, claim.under(verb)) if claim is not None and selector is not None else selector

    def is_of_own_kind(self, offer: ExportCatalog) -> bool:
        """Whether the kind is one of the export itself, not one that it claims."""
        return self._kind is not None and self._name != BINDINGS and self._name not in offer.claimed

    # --- authorization ---

    def authorize(self, view: View, verb: str) -> Decision:
        """Authorize in kcp's order: workspace grants, export content, maximal permission policy, workspace RBAC."""
        offer = self._sources.offers.of(view, self._export)
        if offer is None:
            return _no(_BOUND, "the export is not there", denied=True)
        info, cluster = self._request.info, self._request.cluster
        if info.is_resource and cluster and self._consent(view, offer, verb) is None:
            return _no(_BOUND, "the workspace does not bind or grant it", denied=True)
        if not self._sources.may_reach_content(view, self._caller, self._export, verb):
            return _no(_CONTENT, "no permission on apiexports/content")
        if not self._may_act(view, verb):
            return _no(_CONTENT, "no permission to act for the user")
        if not info.is_resource:
            return _ALLOWED
        if self.labels(view, offer) != self._request.scope.restrictions.labels:
            return _no(_BOUND, "the workspace grants something else now", denied=True)
        if not self._is_permitted(view, offer, verb):
            return _no(_POLICY, "the policy of the claimed kind's export does not permit it")
        if not cluster:
            return _ALLOWED if self._is_as_before(offer) else _no(_BOUND, "the kind is served differently now")
        attributes = with_verb(attributes_of(info, self._request.user, cluster), verb)
        decision = self._sources.authorizer.authorize(view, attributes)
        return Decision(decision.allowed, decision.denied, decision.reason, (*_PASSED, *decision.steps))

    def _may_act(self, view: View, verb: str) -> bool:
        """Return whether a caller who acts for a user may do so, and could do the same by itself."""
        if self._request.acts_for is None:
            return True
        if not self._sources.may_reach_content(view, self._caller, self._export, "impersonate"):
            return False
        info, cluster = self._request.info, self._request.cluster
        attributes = attributes_of(info, acting(self._caller, cluster), cluster)
        return not info.is_resource or self._sources.authorizer.authorize(view, with_verb(attributes, verb)).allowed

    def _consent(self, view: View, offer: ExportCatalog, verb: str) -> AcceptedClaims | None:
        """Return the grants of the workspace if they allow this request."""
        consent = self._sources.consents.of(view, self._request.cluster, self._export, offer)
        claimed = offer.claimed.get(self._name)
        key = claimed.key if claimed is not None else None
        if consent is None or not consent.allows(verb, self._name, key, self._request.info.subresource):
            return None
        return consent

    def _is_permitted(self, view: View, offer: ExportCatalog, verb: str) -> bool:
        claimed = offer.claimed.get(self._name)
        if claimed is None or not claimed.key.identity:
            return True
        attributes = with_verb(attributes_of(self._request.info, self._caller, self._request.cluster), verb)
        permits = self._sources.authorizer.permits
        if not claimed.owners and not view.replicas.empty:
            # The owning export is not replicated yet, and its policy may forbid the request.
            return False
        return all(permits(view, attributes, owner.cluster, owner.name) for owner in claimed.owners)

    def _is_as_before(self, offer: ExportCatalog) -> bool:
        """Return whether the kind that serves a request over all clusters is unchanged."""
        info, before = self._request.info, self._kind
        now = offer.catalog.find(info.group, info.version, info.resource)
        if now is None or before is None:
            return now is before
        return (now.type, now.mark, now.verbs) == (before.type, before.mark, before.verbs)

    # --- writes ---

    def write_rule(self, view: View, obj: Object | None, old: Object | None) -> Sequence[Guard]:
        """Return the guards of a write, and check it against the claim's selector.

        The guards are the bindings behind the grants; they must still hold at commit. Raises Forbidden if the workspace
        withdrew its grants or the claim does not select the object.
        """
        request = self._request
        offer, verb = self._sources.offers.of(view, self._export), request.info.verb
        consent = self._consent(view, offer, verb) if offer is not None else None
        if offer is None or consent is None:
            raise self._refusal(obj or old, "access was withdrawn")
        claimed = offer.claimed.get(self._name)
        claim = consent.claim(claimed.key) if claimed is not None else None
        claim = claim.under(verb) if claim is not None else None
        if claim is not None and old is not None:
            # The object may still carry the label after the claim's selector changed.
            self._check_selected(claim, old, labels_of(old))
        if claim is not None and obj is not None:
            self._keep_selected(claim, obj)
        return consent.guards

    def _keep_selected(self, claim: Claim, obj: Object) -> None:
        labels = labels_of(obj)
        labels = {**labels, **permission_claims.labelled_for(claim, permission_claims.unclaimed(labels))}
        if labels:
            obj["metadata"]["labels"] = labels
        self._check_selected(claim, obj, labels)

    def _check_selected(self, claim: Claim, obj: Object, labels: Mapping[str, str]) -> None:
        if text := permission_claims.unselected(claim, permission_claims.unclaimed(labels)):
            raise self._refusal(obj, text)

    def _refusal(self, obj: Object | None, text: str) -> Exception:
        name = str((obj or {"metadata": {}})["metadata"].get("name", ""))
        kind = self._kind
        assert kind is not None, "a write has a kind"
        return errors.forbidden(kind, name, text)


def _narrowed(selector: LabelSelector, claim: Claim) -> LabelSelector:
    """Return a claim's label selector combined with its own selector.

    With several selectors the label alone decides.
    """
    if len(claim.selectors) != 1 or claim.selectors[0].everything:
        return selector
    return _both(selector, claim.selectors[0].selector)


@lru_cache(maxsize=1024)
def _both(one: LabelSelector, other: LabelSelector) -> LabelSelector:
    return one.and_(other)


def _step(name: str, outcome: Outcome, reason: str = "") -> Step:
    """Return one of kcp's three steps as audit records it, under kcp's name."""
    return Step(name, outcome, reason, f"virtual.apiexport.{name}.authorization.kcp.io")


def _no(name: str, reason: str, *, denied: bool = False) -> Decision:
    outcome = Outcome.DENY if denied else Outcome.NO_OPINION
    return Decision(False, denied, ACCESS_DENIED, (_step(name, outcome, reason),))


_PASSED = tuple(_step(name, Outcome.ALLOW) for name in (_BOUND, _CONTENT, _POLICY))
_ALLOWED = Decision(True, steps=_PASSED)
