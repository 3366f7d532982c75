"""The gate of a logical cluster: requests that an inactive or moving cluster does not serve.

The pipeline checks it after authorization and before dispatch; admission checks creations. The gate is read in the
request's snapshot. A change before the commit fails the guard that carries the gate's generation.
"""

from __future__ import annotations

from atoll.machinery.apiserver.call.requestinfo import RequestInfo
from atoll.machinery.meta.status import Details, Forbidden, ServiceUnavailable
from atoll.machinery.meta.user import MASTERS, User
from atoll.machinery.storage.contract import Gate, GateState

_GROUP, _PLURAL = "core.kcp.io", "logicalclusters"
#: Flags under which controllers create nothing: it would outlive a deleted cluster, or be lost by a moving one.
NOTHING_NEW = frozenset({GateState.CLOSED, GateState.DELETING, GateState.MOVING})
#: The group that may act on clusters that move between shards.
_MOVER = "system:kcp:external-logical-cluster-admin"


def check_gate(info: RequestInfo, user: User, cluster: str, gate: Gate) -> None:
    """Reject requests that an inactive or moving cluster does not serve. Raises Forbidden, ServiceUnavailable."""
    if gate.state is GateState.INACTIVE and not _serves_while_inactive(info):
        message = f'{_PLURAL}.{_GROUP} "{cluster}" is forbidden: logical cluster is marked inactive'
        raise Forbidden(message, Details(cluster, _GROUP, _PLURAL))
    if gate.state is GateState.MOVING and not {MASTERS, _MOVER}.intersection(user.groups):
        raise ServiceUnavailable("logical cluster is being migrated", Details(retry_after_s=1))


def _serves_while_inactive(info: RequestInfo) -> bool:
    """LogicalClusters stay served, so that the cluster can be activated again; so does OpenAPI."""
    if info.is_resource:
        return (info.group, info.resource) == (_GROUP, _PLURAL)
    return info.path == "/openapi" or info.path.startswith("/openapi/")
