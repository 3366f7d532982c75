"""Groups and user names with a meaning of their own: which are privileged, and which are reserved to the system.

The chain, impersonation and every authenticator read this list; the names are kcp's. Invariant: tests generate their
tables from it, so a new privileged group without a rule fails a test.
"""

from __future__ import annotations

from atoll.machinery.meta.user import AUTHENTICATED, MASTERS

KCP_ADMIN = "system:kcp:admin"
WORKSPACE_BOOTSTRAPPER = "system:kcp:tenancy:workspace-bootstrapper"
LOGICAL_CLUSTER_ADMIN = "system:kcp:logical-cluster-admin"
EXTERNAL_LOGICAL_CLUSTER_ADMIN = "system:kcp:external-logical-cluster-admin"
SERVICE_ACCOUNTS = "system:serviceaccounts"

CLUSTER_GROUP_PREFIX = "system:cluster:"
POLICY_PREFIX = "apis.kcp.io:binding:"
LIFECYCLE_PREFIXES = ("system:kcp:initializer:", "system:kcp:terminator:")

#: Groups that only their members, and system:masters, may impersonate.
PRIVILEGED_GROUPS = (
    MASTERS,
    LOGICAL_CLUSTER_ADMIN,
    EXTERNAL_LOGICAL_CLUSTER_ADMIN,
    WORKSPACE_BOOTSTRAPPER,
    KCP_ADMIN,
    AUTHENTICATED,
)
#: Prefixes of names that the system makes itself; neither groups nor users of these names can be impersonated.
RESERVED_PREFIXES = ("system:kcp:", CLUSTER_GROUP_PREFIX, POLICY_PREFIX)
#: Part of the keys of user extras that carry authority: warrants, scopes, the cluster of a service account.
RESERVED_EXTRA = "kcp.io"


def is_privileged(group: str) -> bool:
    """Return whether a group may be impersonated by its members alone."""
    return group in PRIVILEGED_GROUPS or group.startswith(RESERVED_PREFIXES)


def is_lifecycle(group: str) -> bool:
    """Return whether only the shard's initializing and terminating views may add the group to a user."""
    return group.startswith(LIFECYCLE_PREFIXES)


def without_lifecycle(groups: tuple[str, ...]) -> tuple[str, ...]:
    """The groups that a credential may carry. kcp drops the others in its front proxy; here no credential has them."""
    return tuple(group for group in groups if not is_lifecycle(group)) if groups else groups
