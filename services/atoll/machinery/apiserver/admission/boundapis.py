"""Lifecycle of bound APIs: reject creations once the APIBinding is being deleted, or is gone.

The kind of the request may be outdated after slow rules, so the catalogue is read again in the view of the write. The
deletion of a binding releases its locks in the LogicalCluster, whose revision is the guard, so that no object is
created after the resource is emptied.
"""

from __future__ import annotations

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.edge.denaturing import IDENTITY as DENATURED
from atoll.machinery.meta.names import CORE, LOCAL, ObjectKey
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.meta.wellknown import SINGLETON
from atoll.machinery.storage.contract import RevisionUnchanged


class BoundLifecycle(Plugin):
    """Rejects creations of bound kinds that the cluster does not serve, or whose binding is being deleted."""

    validates_plain_writes = False

    def __init__(self, catalogs: Catalogs) -> None:
        self._catalogs = catalogs

    def validate(self, review: Review) -> None:
        kind, cluster = review.call.kind, review.call.cluster
        if review.operation != "create" or kind.identity in {CORE, LOCAL, DENATURED}:
            return
        catalog = self._catalogs.for_request(review.view, cluster)
        served = catalog.find(kind.group, kind.version, kind.plural)
        if served is None or served.identity != kind.identity:
            raise errors.not_served()
        if (kind.group, kind.plural) in catalog.terminating:
            raise errors.definition_terminating(kind, review.name)
        key = ObjectKey(LOGICAL_CLUSTERS, cluster, "", SINGLETON)
        review.guards.append(RevisionUnchanged(key, review.view.revision_of(key)))
