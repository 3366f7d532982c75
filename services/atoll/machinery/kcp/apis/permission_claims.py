"""Permission claims: matching of an APIExport's claims with the claims an APIBinding accepts.

The labeller, the claims controller and the apiexport view call these functions; no other module decides what a claim
covers. A claim is effective where the export makes it and the binding accepts it, for the verbs in both and the objects
that match the binding's selector. Pure: exports and bindings are v1alpha2 objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from atoll.machinery.meta import hashes
from atoll.machinery.meta.names import CORE, ResourceType
from atoll.machinery.meta.objects import Object, spec_of, status_of
from atoll.machinery.meta.selectors import LabelSelector, SelectorError, compile_label_selector

ACCEPTED, REJECTED = "Accepted", "Rejected"
EVERY_VERB = "*"
_WITHHELD = ".withheld"
_APIS, _EVENTS_GROUP, _EVENTS = "apis.kcp.io", "events.k8s.io", "events"

#: Built-in kinds that can be claimed. They have no identity, since no APIExport offers them.
CLAIMABLE: frozenset[tuple[str, str]] = frozenset(
    {
        *(("", name) for name in ("configmaps", _EVENTS, "namespaces", "resourcequotas", "secrets", "serviceaccounts")),
        *(
            ("rbac.authorization.k8s.io", name)
            for name in ("clusterrolebindings", "clusterroles", "rolebindings", "roles")
        ),
        *(
            ("admissionregistration.k8s.io", name)
            for name in (
                "mutatingadmissionpolicies",
                "mutatingadmissionpolicybindings",
                "mutatingwebhookconfigurations",
                "validatingadmissionpolicies",
                "validatingadmissionpolicybindings",
                "validatingwebhookconfigurations",
            )
        ),
        ("certificates.k8s.io", "certificatesigningrequests"),
        ("coordination.k8s.io", "leases"),
        (_EVENTS_GROUP, _EVENTS),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("core.kcp.io", "logicalclusters"),
        ("authorization.k8s.io", "subjectaccessreviews"),
        ("authorization.k8s.io", "localsubjectaccessreviews"),
        ("authentication.k8s.io", "tokenreviews"),
    }
)
#: Claimable kinds that are never stored (reviews): no object carries a claim label for them.
REVIEWS = frozenset((group, name) for group, name in CLAIMABLE if name.endswith("reviews"))


class ClaimKey(NamedTuple):
    """The claimed kind, by which claims of exports and bindings match. `identity` is empty for kinds without export."""

    group: str
    resource: str
    identity: str = ""

    @property
    def covered(self) -> ClaimKey:
        """The kind as it is stored: events are one kind in two groups, and a claim on either covers both."""
        return _CORE_EVENTS if self == _NEW_EVENTS else self

    @property
    def type(self) -> ResourceType:
        """The type under which the claimed objects are stored."""
        group, resource, identity = self.covered
        return ResourceType(group, resource, identity or CORE)

    @property
    def group_resource(self) -> str:
        """The name used in messages: `configmaps`, `widgets.example.io`."""
        return f"{self.resource}.{self.group}" if self.group else self.resource


_CORE_EVENTS, _NEW_EVENTS = ClaimKey("", _EVENTS), ClaimKey(_EVENTS_GROUP, _EVENTS)


class Selector:
    """A claim's selector: which objects of the claimed kind it covers, by label.

    `required` holds the labels that the selector requires with one exact value; a view sets them on objects created
    through it.
    """

    __slots__ = ("everything", "matches", "required", "selector")

    def __init__(self, selector: LabelSelector) -> None:
        self.selector, self.matches, self.required = selector, selector.matches, selector.exact()
        self.everything = selector.matches_everything


EVERYTHING, NOTHING = Selector(LabelSelector()), Selector(LabelSelector(matches_nothing=True))


class Claim(msgspec.Struct, frozen=True):
    """The grant of a binding for one claimed kind: verbs, and selectors of which at least one must match an object.

    More than one selector occurs only where events are claimed in both groups; `parts` then holds the two claims.
    """

    key: ClaimKey
    verbs: frozenset[str]
    selectors: tuple[Selector, ...]
    parts: tuple[Claim, ...] = ()

    def allows(self, verb: str) -> bool:
        """Whether a request with this verb is granted; `*` grants every verb if export and binding both list `*`."""
        return verb in self.verbs or EVERY_VERB in self.verbs

    def under(self, verb: str) -> Claim:
        """Return the claim for one verb: where both events groups are claimed, the one claim that allows the verb."""
        allowing = [part for part in self.parts if part.allows(verb)]
        return allowing[0] if len(allowing) == 1 else self

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels (claim labels removed) is claimed."""
        return any(each.matches(labels) for each in self.selectors)


def key_of(claim: Object) -> ClaimKey:
    """Return the key of a claim in an export's spec, a binding's spec or a binding's status."""
    return ClaimKey(claim.get("group") or "", claim["resource"], claim.get("identityHash") or "")


def needs_identity(group: str, resource: str) -> bool:
    """Whether a claim needs an identityHash: every kind except built-in ones and those of apis.kcp.io."""
    return group != _APIS and (group, resource) not in CLAIMABLE


def exported(export: Object) -> dict[ClaimKey, Object]:
    """Return the claims of an export."""
    return _by_key(spec_of(export).get("permissionClaims"))


def accepted(binding: Object) -> dict[ClaimKey, Object]:
    """Return the claims that a binding accepts, whether or not the export makes them."""
    return {key: claim for key, claim in _requested(binding).items() if claim.get("state") == ACCEPTED}


def applied(binding: Object) -> dict[ClaimKey, Object]:
    """Return the claims in status.appliedPermissionClaims, with the selectors by which objects are labelled."""
    return _by_key(status_of(binding).get("appliedPermissionClaims"))


def _requested(binding: Object) -> dict[ClaimKey, Object]:
    return _by_key(spec_of(binding).get("permissionClaims"))


def _by_key(claims: Iterable[Object] | None) -> dict[ClaimKey, Object]:
    return {key_of(claim): claim for claim in claims or ()}


def effective(export: Object, binding: Object) -> dict[ClaimKey, Claim]:
    """Return the claims that the export's provider may use through the binding, by stored kind.

    The keys are `ClaimKey(group, resource, identity).covered`. A claim on a kind that the export itself offers has no
    effect: the offered kind is served in its place.
    """
    offered = {(each.get("group") or "", each["name"]) for each in spec_of(export).get("resources") or ()}
    claims = granted(exported(export), accepted(binding))
    return {key: claim for key, claim in claims.items() if (key.group, key.resource) not in offered}


def granted(claimed: Mapping[ClaimKey, Object], accepted: Mapping[ClaimKey, Object]) -> dict[ClaimKey, Claim]:
    """Return the claims in both mappings, by stored kind."""
    found: dict[ClaimKey, Claim] = {}
    for key, claim in accepted.items():
        exported_claim = claimed.get(key)
        if exported_claim is None:
            continue
        verbs = frozenset(claim.get("verbs") or ()) & frozenset(exported_claim.get("verbs") or ())
        one = Claim(key.covered, verbs, (selector_of(claim),))
        same = found.get(key.covered)
        found[key.covered] = one if same is None else _both(same, one)
    return found


def _both(one: Claim, other: Claim) -> Claim:
    return Claim(one.key, one.verbs | other.verbs, (*one.selectors, *other.selectors), (one, other))


def selector_of(claim: Object) -> Selector:
    """Return the selector of an accepted claim. An empty or invalid selector matches nothing."""
    selector = claim.get("selector") or {}
    if selector.get("matchAll"):
        return EVERYTHING
    if not (selector.get("matchLabels") or selector.get("matchExpressions")):
        return NOTHING
    try:
        return Selector(compile_label_selector(selector))
    except SelectorError:
        return NOTHING


def label(export_hash: str, key: ClaimKey) -> tuple[str, str]:
    """Return label key and value for the objects that a claim covers; `export_hash` is hashes.export_hash."""
    group, resource, identity = key.covered
    return hashes.CLAIM_LABEL_PREFIX + export_hash, hashes.claim_value(group, resource, identity)


def withheld_label(export_hash: str) -> tuple[str, str]:
    """Return label key and value for objects that a claim covers without granting list or watch.

    Wildcard requests across workspaces select by this label, since they do not evaluate each binding.
    """
    return f"{hashes.CLAIM_LABEL_PREFIX}{export_hash}{_WITHHELD}", "true"


def is_withheld(claim: Object) -> bool:
    """Whether a claim was accepted without the verbs `list`, `watch` and `*`."""
    return not {"list", "watch", EVERY_VERB} & set(claim.get("verbs") or ())


def reflexive_label(export_hash: str) -> tuple[str, str]:
    """Return label key and value for an APIBinding to the export that no claim on APIBindings covers."""
    return hashes.CLAIM_LABEL_PREFIX + export_hash, hashes.REFLEXIVE_VALUE


def accept(claim: Object) -> Object:
    """Return an export's claim as a default binding accepts it: with its defaultSelector, or else matchAll."""
    return {**claim, "selector": claim.get("defaultSelector") or {"matchAll": True}, "state": ACCEPTED}


# --- objects written through a view ------------------------------------------------------------------------------


def labelled_for(claim: Claim, labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of an object that a provider writes under a claim; absent required labels are added."""
    if claim.selects(labels) or len(claim.selectors) != 1:
        return dict(labels)
    return {**claim.selectors[0].required, **labels}


def unselected(claim: Claim, labels: Mapping[str, str]) -> str | None:
    """Return why an object with these labels may not be written under a claim; None if it may."""
    if claim.selects(labels):
        return None
    selectors = " or ".join(f'"{each.selector}"' for each in claim.selectors)
    return f"labels do not match the selector {selectors} of the permission claim on {claim.key.group_resource}"


def unclaimed(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels without claim labels. Selectors are evaluated on these."""
    return {key: value for key, value in labels.items() if not key.startswith(hashes.CLAIM_LABEL_PREFIX)}


def sorted_claims(claims: Mapping[ClaimKey, Object]) -> Sequence[ClaimKey]:
    """Return the keys in the order in which kcp lists claims in a status."""
    return sorted(claims, key=lambda key: (key.resource, key.group, key.identity))
