"""What a logical cluster's gate lets through, beyond what authorization says.

The pipeline asks before dispatch; what may be created is admission's to say. The gate is read in the request's own
snapshot; what changed until the commit is caught by the guard that carries its generation.
"""

from __future__ import annotations

from atoll.machinery.apiserver.call.requestinfo import RequestInfo
from atoll.machinery.meta.status import Details, Forbidden, ServiceUnavailable
from atoll.machinery.meta.user import MASTERS, User
from atoll.machinery.storage.contract import Gate, GateState

_GROUP, _PLURAL = "core.kcp.io", "logicalclusters"
#: Where controllers make nothing of their own accord: it would outlive a cluster that goes, or be lost where it moves.
NOTHING_NEW = frozenset({GateState.CLOSED, GateState.DELETING, GateState.MOVING})
#: Acts on clusters that move between shards.
_MOVER = "system:kcp:external-logical-cluster-admin"


def check_gate(info: RequestInfo, user: User, cluster: str, gate: Gate) -> None:
    """Refuse what an inactive or a moving cluster does not serve. Raises Forbidden, ServiceUnavailable."""
    if gate.state is GateState.INACTIVE and not _serves_while_inactive(info):
        message = f'{_PLURAL}.{_GROUP} "{cluster}" is forbidden: logical cluster is marked inactive'
        raise Forbidden(message, Details(cluster, _GROUP, _PLURAL))
    if gate.state is GateState.MOVING and not {MASTERS, _MOVER}.intersection(user.groups):
        raise ServiceUnavailable("logical cluster is being migrated", Details(retry_after_s=1))


def _serves_while_inactive(info: RequestInfo) -> bool:
    """LogicalClusters stay reachable, so that somebody can activate the cluster again; so does OpenAPI."""
    if info.is_resource:
        return (info.group, info.resource) == (_GROUP, _PLURAL)
    return info.path == "/openapi" or info.path.startswith("/openapi/")
