"""Lifecycle of definitions: reject creations once a CustomResourceDefinition is being deleted.

The check has the error message; the guard is checked in the write's transaction, so that no object is created between
the emptying of a definition and its removal.
"""

from __future__ import annotations

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.apiserver.call import errors
from atoll.machinery.meta.names import LOCAL, ObjectKey
from atoll.machinery.meta.types import CRDS
from atoll.machinery.storage.contract import Flag, RevisionUnchanged


class DefinitionLifecycle(Plugin):
    """Rejects creations of a cluster's own custom kinds while their definition terminates."""

    validates_plain_writes = False

    def validate(self, review: Review) -> None:
        kind = review.call.kind
        if review.operation != "create" or kind.identity != LOCAL:
            return
        key = ObjectKey(CRDS, review.call.cluster, "", f"{kind.plural}.{kind.group}")
        record = review.view.get(key)
        if record is None:
            return
        if record.flags & Flag.DELETING:
            raise errors.definition_terminating(kind, review.name)
        review.guards.append(RevisionUnchanged(key, record.revision))
