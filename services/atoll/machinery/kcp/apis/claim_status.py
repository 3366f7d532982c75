"""What an APIBinding's status says of permission claims.

The binding controller announces what the export claims. The claims controller writes `begun` before it labels objects,
as labels go by appliedPermissionClaims alone, and `settled` after it. Four things of a status are theirs:
exportPermissionClaims, appliedPermissionClaims, and the conditions PermissionClaimsValid and PermissionClaimsApplied.
Invariant: while objects may carry other labels than they should, PermissionClaimsApplied is False.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from atoll.machinery.kcp.apis import permission_claims
from atoll.machinery.kcp.apis.permission_claims import ClaimKey
from atoll.machinery.meta.conditions import ERROR, FALSE, INFO, TRUE, WARNING, Condition, find, is_true, set_condition
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.objects import Object

CLAIMS_VALID, CLAIMS_APPLIED = "PermissionClaimsValid", "PermissionClaimsApplied"
#: Claims and types that a message names.
MAX_SHOWN = 10


def with_exported_claims(binding: Object, claimed: Sequence[Object], now: str) -> Object:
    """The binding once its status names what the export claims; equal to the one given if it does."""
    status = dict(binding.get("status") or {})
    if claimed:
        status["exportPermissionClaims"] = list(claimed)
    else:
        status.pop("exportPermissionClaims", None)
    status["conditions"] = set_condition(status.get("conditions") or [], _validity(binding, claimed), now)
    return {**binding, "status": status}


def labelling_started(binding: Object, claimed: Sequence[Object], now: str) -> Object:
    """The binding from which on new objects are labelled as they should be; those that are there come next."""
    text = "labels of what is claimed are being brought up to date"
    return _with_condition(binding, claimed, Condition(CLAIMS_APPLIED, FALSE, "Applying", text, INFO), now)


def has_started_labelling(binding: Object, begun: Object) -> bool:
    """Whether a binding grants what `begun` says, and is unfinished for a reason of its own."""
    now, then = binding.get("status") or {}, begun["status"]
    lists = ("exportPermissionClaims", "appliedPermissionClaims")
    return is_changing(binding) and all(now.get(each) == then.get(each) for each in lists)


def labelling_finished(
    binding: Object, claimed: Sequence[Object], failures: Mapping[ResourceType, str], now: str
) -> Object:
    """The binding once objects are labelled; equal to the one given if its status says so already.

    `failures` are types of which objects could not be labelled, with the reason.
    """
    condition = Condition(CLAIMS_APPLIED, TRUE)
    if failures:
        failed = "; ".join(f"{type.group_resource}: {text}" for type, text in sorted(failures.items())[:MAX_SHOWN])
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
    """What status.appliedPermissionClaims should name: accepted claims that the export makes, each as accepted."""
    exported = {permission_claims.key_of(claim) for claim in claimed}
    return {
        key: {name: value for name, value in claim.items() if name != "state"}
        for key, claim in permission_claims.accepted(binding).items()
        if key in exported
    }


def types_to_label(binding: Object, claimed: Sequence[Object]) -> set[ResourceType]:
    """The types of which objects are labelled otherwise once what is wanted is applied."""
    before, after = permission_claims.applied(binding), claims_to_apply(binding, claimed)
    keys = {key for key in before.keys() | after.keys() if _scope(before.get(key)) != _scope(after.get(key))}
    return _stored(keys)


def labelled_types(binding: Object) -> set[ResourceType] | None:
    """The types of which objects carry labels for a binding; None where it was changing, and nobody knows."""
    return None if is_changing(binding) else _stored(permission_claims.applied(binding))


def is_changing(binding: Object) -> bool:
    """Whether objects may carry labels of claims that are applied no more, or lack those that are."""
    found = find((binding.get("status") or {}).get("conditions") or (), CLAIMS_APPLIED)
    return found is not None and found["status"] != TRUE


def _stored(keys: Iterable[ClaimKey]) -> set[ResourceType]:
    return {key.type for key in keys if (key.group, key.resource) not in permission_claims.REVIEWS}


def is_complete(binding: Object) -> bool:
    """Whether nothing that the binding accepts is still to be applied."""
    if not permission_claims.accepted(binding):
        return True
    status = binding.get("status") or {}
    done = is_true(status.get("conditions") or (), CLAIMS_APPLIED)
    return done and claims_to_apply(binding, status.get("exportPermissionClaims") or ()) == permission_claims.applied(
        binding
    )


def _scope(claim: Object | None) -> tuple[Object, bool] | None:
    """Of an applied claim what labels go by."""
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
    """kcp compares verbs unless one side names all, and the selector where the export proposes one."""
    mine, theirs = set(accepted.get("verbs") or ()), set(claimed.get("verbs") or ())
    if permission_claims.EVERY_VERB not in mine | theirs and mine != theirs:
        yield f"verbs: {' '.join(sorted(mine))} for {' '.join(sorted(theirs))}"
    default = claimed.get("defaultSelector")
    if default is not None and default != accepted.get("selector"):
        yield "selector differs from defaultSelector"


def _named(key: ClaimKey) -> str:
    return f"{key.group_resource} (identity {key.identity})" if key.identity else key.group_resource


def _listed(words: Sequence[str]) -> str:
    more = f" and {len(words) - MAX_SHOWN} more" if len(words) > MAX_SHOWN else ""
    return ", ".join(words[:MAX_SHOWN]) + more
