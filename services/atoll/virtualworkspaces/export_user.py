"""The user as which a provider's request continues in a workspace that binds its export.

`apiexport` and `export_request` use it. Invariant: the warrant holds in the one workspace only.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec.structs import replace

from atoll.machinery.apiserver.authorization.effective_users import WARRANT
from atoll.machinery.apiserver.authorization.groups import KCP_ADMIN
from atoll.machinery.meta.objects import encode_json
from atoll.machinery.meta.user import CLUSTER_NAME, User

#: The account of the warrant: a service account of the workspace with its administrators' rights.
WARRANTED = "system:serviceaccount:default:rest"
ORIGINAL_NAME = "experimental.authorization.kcp.io/original-username"
ORIGINAL_GROUPS = "experimental.authorization.kcp.io/original-groups"


def acting(caller: User, cluster: str) -> User:
    """Return the user of a request in a workspace: the caller, plus the warrant of the workspace's system account."""
    return replace(
        caller,
        extra={
            **caller.extra,
            WARRANT: (*caller.extra.get(WARRANT, ()), _warrant(cluster)),
            ORIGINAL_NAME: (caller.name,),
            ORIGINAL_GROUPS: caller.groups,
        },
    )


@lru_cache(maxsize=4096)
def _warrant(cluster: str) -> str:
    return encode_json({"user": WARRANTED, "groups": [KCP_ADMIN], "extra": {CLUSTER_NAME: [cluster]}}).decode()
