"""Permission claims in the status of an APIBinding.

The binding controller writes `with_exported_claims`. The claims controller writes `labelling_started` before it labels
objects, since labels follow from appliedPermissionClaims alone, and `labelling_finished` afterwards. These functions
own four fields of the status: exportPermissionClaims, appliedPermissionClaims, and the conditions PermissionClaimsValid
and PermissionClaimsApplied. Invariant: while objects may carry wrong labels, PermissionClaimsApplied is False.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from atoll.machinery.kcp.apis import permission_claims
from atoll.machinery.kcp.apis.permission_claims import ClaimKey
from atoll.machinery.meta.conditions import ERROR, FALSE, INFO, TRUE, WARNING, Condition, find, is_true, set_condition
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.objects import Object, conditions_of, status_of

CLAIMS_VALID, CLAIMS_APPLIED = "PermissionClaimsValid", "PermissionClaimsApplied"
#: Maximal number of claims or types in one message.
MAX_LISTED = 10


def with_exported_claims(binding: Object, claimed: Sequence[Object], now: str) -> Object:
    """Return the binding with the claims of its export in status; an equal object if they are there already."""
    status = dict(status_of(binding))
    if claimed:
        status["exportPermissionClaims"] = list(claimed)
    else:
        status.pop("exportPermissionClaims", None)
    status["conditions"] = set_condition(conditions_of(binding), _validity(binding, claimed), now)
    return {**binding, "status": status}


def labelling_started(binding: Object, claimed: Sequence[Object], now: str) -> Object:
    """Return the binding with the claims applied: new objects are labelled by it, existing ones are labelled next."""
    text = "labels of what is claimed are being brought up to date"
    return _with_condition(binding, claimed, Condition(CLAIMS_APPLIED, FALSE, "Applying", text, INFO), now)


def labels_moved(status: Object, now: str) -> Object:
    """Return the status of a binding whose labels become those of another export: its objects are labelled again."""
    if not status.get("appliedPermissionClaims"):
        return status
    text = "labels of what is claimed follow the binding to another export"
    condition = Condition(CLAIMS_APPLIED, FALSE, "Applying", text, INFO)
    return {**status, "conditions": set_condition(status["conditions"], condition, now)}


def has_started_labelling(binding: Object, begun: Object) -> bool:
    """Return whether a binding applies the same claims as `begun` and is already marked as unfinished."""
    now, then = status_of(binding), begun["status"]
    lists = ("exportPermissionClaims", "appliedPermissionClaims")
    return is_changing(binding) and all(now.get(each) == then.get(each) for each in lists)


def labelling_finished(
    binding: Object, claimed: Sequence[Object], failures: Mapping[ResourceType, str], now: str
) -> Object:
    """Return the binding with the result of labelling; an equal object if its status has it already.

    `failures` maps the types of objects that could not be labelled to the reason.
    """
    condition = Condition(CLAIMS_APPLIED, TRUE)
    if failures:
        failed = "; ".join(f"{type.group_resource}: {text}" for type, text in sorted(failures.items())[:MAX_LISTED])
        text = f"Permission claims have not been fully applied: {failed}"
        condition = Condition(CLAIMS_APPLIED, FALSE, "InternalError", text, ERROR)
    return _with_condition(binding, claimed, condition, now)


def _with_condition(binding: Object, claimed: Sequence[Object], condition: Condition, now: str) -> Object:
    binding = with_exported_claims(binding, claimed, now)
    status, granted = dict(binding["status"]), claims_to_apply(binding, claimed)
    if granted:
        status["appliedPermissionClaims"] = [granted[key] for key in permission_claims.sorted_claims(granted)]
    else:
        status.pop("appliedPermissionClaims", None)
    status["conditions"] = set_condition(status["conditions"], condition, now)
    return {**binding, "status": status}


def claims_to_apply(binding: Object, claimed: Sequence[Object]) -> dict[ClaimKey, Object]:
    """Return the desired status.appliedPermissionClaims: accepted claims that the export makes, each as accepted."""
    exported = {permission_claims.key_of(claim) for claim in claimed}
    return {
        key: {name: value for name, value in claim.items() if name != "state"}
        for key, claim in permission_claims.accepted(binding).items()
        if key in exported
    }


def types_to_label(binding: Object, claimed: Sequence[Object]) -> set[ResourceType]:
    """Return the types whose objects change labels when `claims_to_apply` is applied."""
    before, after = permission_claims.applied(binding), claims_to_apply(binding, claimed)
    keys = {key for key in before.keys() | after.keys() if _scope(before.get(key)) != _scope(after.get(key))}
    return _stored(keys)


def labelled_types(binding: Object) -> set[ResourceType] | None:
    """Return the types whose objects carry labels for a binding; None (unknown) while it is changing."""
    return None if is_changing(binding) else _stored(permission_claims.applied(binding))


def is_changing(binding: Object) -> bool:
    """Return whether objects may carry labels of claims no longer applied, or lack labels of applied ones."""
    found = find(conditions_of(binding), CLAIMS_APPLIED)
    return found is not None and found["status"] != TRUE


def _stored(keys: Iterable[ClaimKey]) -> set[ResourceType]:
    return {key.type for key in keys if (key.group, key.resource) not in permission_claims.REVIEWS}


def is_complete(binding: Object) -> bool:
    """Return whether every accepted claim is applied."""
    if not permission_claims.accepted(binding):
        return True
    status = status_of(binding)
    done = is_true(conditions_of(binding), CLAIMS_APPLIED)
    return done and claims_to_apply(binding, status.get("exportPermissionClaims") or ()) == permission_claims.applied(
        binding
    )


def _scope(claim: Object | None) -> tuple[Object, bool] | None:
    """Return the fields of an applied claim that determine labels."""
    return (claim.get("selector") or {}, permission_claims.is_withheld(claim)) if claim is not None else None


def _validity(binding: Object, claimed: Sequence[Object]) -> Condition:
    exported = {permission_claims.key_of(claim): claim for claim in claimed}
    accepted = permission_claims.accepted(binding)
    mismatched = [
        f"{key.group_resource} ({text})"
        for key in permission_claims.sorted_claims(accepted)
        if key in exported and (text := "; ".join(_mismatches(accepted[key], exported[key])))
    ]
    if mismatched:
        text = f"accepted otherwise than the APIExport claims them: {_listed(mismatched)}"
        return Condition(CLAIMS_VALID, FALSE, "PermissionClaimsMismatch", text, WARNING)
    unexpected = [_named(key) for key in permission_claims.sorted_claims(accepted) if key not in exported]
    if unexpected:
        text = f"accepted, but not claimed by the APIExport: {_listed(unexpected)}"
        return Condition(CLAIMS_VALID, FALSE, "InvalidPermissionClaims", text, ERROR)
    return Condition(CLAIMS_VALID, TRUE)


def _mismatches(accepted: Object, claimed: Object) -> Iterator[str]:
    """Compare as kcp does: verbs unless one side has `*`, and the selector where the export proposes one."""
    mine, theirs = set(accepted.get("verbs") or ()), set(claimed.get("verbs") or ())
    if permission_claims.EVERY_VERB not in mine | theirs and mine != theirs:
        yield f"verbs: {' '.join(sorted(mine))} for {' '.join(sorted(theirs))}"
    default = claimed.get("defaultSelector")
    if default is not None and default != accepted.get("selector"):
        yield "selector differs from defaultSelector"


def _named(key: ClaimKey) -> str:
    return f"{key.group_resource} (identity {key.identity})" if key.identity else key.group_resource


def _listed(words: Sequence[str]) -> str:
    more = f" and {len(words) - MAX_LISTED} more" if len(words) > MAX_LISTED else ""
    return ", ".join(words[:MAX_LISTED]) + more
