"""Group and user names with a meaning of their own: which grant power, and who may speak for them.

The chain, impersonation and every authenticator read this list; tests generate their tables from it, so a new
privileged group without a rule shows up as a failing test. The names are kcp's.
"""

from __future__ import annotations

from atoll.machinery.meta.user import AUTHENTICATED, MASTERS

KCP_ADMIN = "system:kcp:admin"
WORKSPACE_BOOTSTRAPPER = "system:kcp:tenancy:workspace-bootstrapper"
LOGICAL_CLUSTER_ADMIN = "system:kcp:logical-cluster-admin"
EXTERNAL_LOGICAL_CLUSTER_ADMIN = "system:kcp:external-logical-cluster-admin"
SERVICE_ACCOUNTS = "system:serviceaccounts"

SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"
GLOBAL_SERVICE_ACCOUNT_PREFIX = "system:kcp:serviceaccount:"
CLUSTER_GROUP_PREFIX = "system:cluster:"
POLICY_PREFIX = "apis.kcp.io:binding:"
LIFECYCLE_PREFIXES = ("system:kcp:initializer:", "system:kcp:terminator:")

#: Groups that only somebody who is in them (or in system:masters) may impersonate.
PRIVILEGED_GROUPS = (
    MASTERS,
    LOGICAL_CLUSTER_ADMIN,
    EXTERNAL_LOGICAL_CLUSTER_ADMIN,
    WORKSPACE_BOOTSTRAPPER,
    KCP_ADMIN,
    AUTHENTICATED,
)
#: Names that the system makes itself; as groups and as user names they can not be impersonated into either.
RESERVED_PREFIXES = ("system:kcp:", CLUSTER_GROUP_PREFIX, POLICY_PREFIX)
#: User extras that carry authority (warrants, scopes, cluster of a service account) have this in their key.
RESERVED_EXTRA = "kcp.io"


def is_privileged(group: str) -> bool:
    """Whether a group may be impersonated only by its members."""
    return group in PRIVILEGED_GROUPS or group.startswith(RESERVED_PREFIXES)


def is_lifecycle(group: str) -> bool:
    """Groups that only the shard's own initializing and terminating views may add to an identity."""
    return group.startswith(LIFECYCLE_PREFIXES)


def without_lifecycle(groups: tuple[str, ...]) -> tuple[str, ...]:
    """The groups a credential may carry. kcp drops these in its front proxy; here no credential has them."""
    return tuple(group for group in groups if not is_lifecycle(group)) if groups else groups
