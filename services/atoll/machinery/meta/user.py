"""The user of a request: authentication makes it; authorization, admission and audit read it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ANONYMOUS = "system:anonymous"
SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"
GLOBAL_SERVICE_ACCOUNT_PREFIX = "system:kcp:serviceaccount:"
#: Extra of a service account: its home cluster.
CLUSTER_NAME = "authentication.kcp.io/cluster-name"


class User(msgspec.Struct, frozen=True):
    """An authenticated identity, as authentication.k8s.io UserInfo carries it."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = {}

    @property
    def is_master(self) -> bool:
        return MASTERS in self.groups


def is_service_account(name: str) -> bool:
    """Return whether a user name is a service account's, which is local to its home cluster."""
    return name.startswith(SERVICE_ACCOUNT_PREFIX)


def global_name(service_account: str, cluster: str) -> str:
    """`system:kcp:serviceaccount:<cluster>:<namespace>:<name>` of a `system:serviceaccount:...` user."""
    return f"{GLOBAL_SERVICE_ACCOUNT_PREFIX}{cluster}:{service_account.removeprefix(SERVICE_ACCOUNT_PREFIX)}"


ANONYMOUS_USER = User(ANONYMOUS, (UNAUTHENTICATED,))
