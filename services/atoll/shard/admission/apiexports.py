"""Admission of APIExports: permission claims, schema names, and an identity hash that only the system sets.

Implements kcp's plug-in apis.kcp.io/APIExport. status.identityHash is the hash of the identity's key, and a tenant who
could write another hash would gain access to the objects of that identity. As in kcp, system:masters may write it; the
export's controller compares it with the key.
"""

from __future__ import annotations

from collections.abc import Iterator

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.apiserver.call import errors
from atoll.machinery.kcp.apis.permission_claims import needs_identity
from atoll.machinery.kcp.apis.versions import latest
from atoll.machinery.meta.objects import Object, spec_of, status_of
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import forbidden, invalid

_OWN = ("apis.kcp.io", "apiexports")
_UNCLAIMABLE = "identityHash is required for API types that are not built-in"


class ApiExports(Plugin):
    """Validates APIExports."""

    resources = (_OWN,)

    def validate(self, review: Review) -> None:
        if review.obj is None:
            return
        obj = latest(review.obj)
        found = list(_identity_errors(review, obj))
        if not review.subresource:
            found += [*_claim_errors(obj), *_resource_errors(obj)]
        if found:
            raise errors.forbidden(review.call.kind, obj["metadata"]["name"], str(found[0]))


def _identity_errors(review: Review, obj: Object) -> Iterator[FieldError]:
    now, then = (str(status_of(each or {}).get("identityHash") or "") for each in (obj, review.old))
    if now == then or review.call.whole or review.call.user.is_master:
        return
    if then:
        yield invalid("status.identityHash", now, "field is immutable")
    else:
        yield forbidden("status.identityHash", "is set by the system")


def _claim_errors(obj: Object) -> Iterator[FieldError]:
    for index, claim in enumerate(spec_of(obj).get("permissionClaims") or []):
        if not claim.get("identityHash") and needs_identity(claim.get("group") or "", claim["resource"]):
            yield invalid(f"spec.permissionClaims[{index}].identityHash", "", _UNCLAIMABLE)


def _resource_errors(obj: Object) -> Iterator[FieldError]:
    for index, resource in enumerate(spec_of(obj).get("resources") or []):
        end = f".{resource['name']}.{resource['group'] or 'core'}"
        if not resource["schema"].endswith(end):
            yield invalid(f"spec.resources[{index}].schema", resource["schema"], f"must end in {end}")
