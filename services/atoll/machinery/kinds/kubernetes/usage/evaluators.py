"""Which kinds use more of a quota than their number, and which of them an entry of `spec.hard` is about."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from atoll.machinery.kinds.kubernetes.usage import pods, resource_claims, services, volume_claims
from atoll.machinery.kinds.kubernetes.usage.charge import Charge

GroupResource = tuple[str, str]
PODS, SERVICES, VOLUME_CLAIMS = ("", "pods"), ("", "services"), ("", volume_claims.CLAIMS)
RESOURCE_CLAIMS = (resource_claims.GROUP, "resourceclaims")

#: From the stored JSON of an object of the kind, under every identity: a workspace has one kind of the name at a time.
EVALUATORS: Mapping[GroupResource, Callable[[bytes], Charge]] = {
    PODS: pods.charge,
    SERVICES: services.charge,
    VOLUME_CLAIMS: volume_claims.charge,
    RESOURCE_CLAIMS: resource_claims.charge,
}
#: The scopes that quotas of a kind may have; one with a scope counts nothing of other kinds.
SCOPES: Mapping[GroupResource, frozenset[str]] = {PODS: pods.SCOPES, VOLUME_CLAIMS: frozenset({volume_claims.SCOPE})}
_OF_STORAGE_CLASS = tuple(volume_claims.OF_CLASS + name for name in (volume_claims.CLAIMS, volume_claims.STORAGE))


def evaluated_kind(name: str) -> GroupResource | None:
    """Return the kind of which an entry of `spec.hard` counts something else than objects; None: of none."""
    if name in services.NAMES:
        return SERVICES
    if name in volume_claims.NAMES or name.endswith(_OF_STORAGE_CLASS):
        return VOLUME_CLAIMS
    if name.endswith(resource_claims.OF_CLASS):
        return RESOURCE_CLAIMS
    return PODS if pods.charges(name) else None
