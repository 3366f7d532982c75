"""Admission of identity Secrets: the author of an APIExport must have `get` on the Secret it names.

An identity grants access to the objects stored under it. Without this check, a reference to another user's Secret (in
another namespace, or left by a deleted export) would bypass RBAC on Secrets. kcp accepts any Secret.
"""

from __future__ import annotations

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.apiserver.authorization.attributes import Attributes
from atoll.machinery.apiserver.call import errors
from atoll.machinery.kcp.apis.apiexports import SecretReference, generated_reference, secret_reference
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.types import SECRETS
from atoll.shard.admission.workspaces import May

_OWN = frozenset({("apis.kcp.io", "apiexports"), ("cache.kcp.io", "clustercachedresources")})


class ExportIdentities(Plugin):
    """Validates spec.identity of APIExports and ClusterCachedResources. `may_here` authorizes in their own cluster."""

    resources = _OWN

    def __init__(self, may_here: May) -> None:
        self._may_here = may_here

    def validate(self, review: Review) -> None:
        if review.obj is None or review.subresource:
            return
        reference = _reference(review)
        if review.call.user.is_master or reference is None or self._may_read(review, reference):
            return
        text = f'spec.identity.secretRef: no permission to get secret "{reference.namespace}/{reference.name}"'
        raise errors.forbidden(review.call.kind, review.obj["metadata"]["name"], text)

    def _may_read(self, review: Review, reference: SecretReference) -> bool:
        attributes = Attributes(
            user=review.call.user,
            verb="get",
            cluster=review.call.cluster,
            version="v1",
            resource="secrets",
            namespace=reference.namespace,
            name=reference.name,
        )
        return self._may_here(review.view, attributes)


def _reference(review: Review) -> SecretReference | None:
    """Return the existing Secret that this write selects as the identity; None if it selects none or keeps the old."""
    assert review.obj is not None
    named = secret_reference(review.obj)
    if named is not None:
        return named if review.old is None or secret_reference(review.old) != named else None
    if review.old is not None and secret_reference(review.old) is None:
        return None
    # An existing Secret with the export's name becomes the identity.
    generated = generated_reference(review.obj)
    return generated if review.view.revision_of(ObjectKey(SECRETS, review.call.cluster, *generated)) else None
