"""Names of the system: logical clusters, workspace paths, resource types, object keys.

Storage, routing, publishing and authorization use these values. Invariant: a key is a typed tuple from the parsed URL
on, never a joined string, so no prefix can cross a cluster or an identity.
"""

from __future__ import annotations

import re

import msgspec

#: Identity of built-in kinds and of system CRDs, the same in every cluster of a shard.
CORE = "core"
#: Identity of kinds that a cluster's own CustomResourceDefinitions declare.
LOCAL = "local"

ROOT = "root"
SYSTEM_ADMIN = "system:admin"
SYSTEM_SHARD = "system:shard"
SYSTEM_CRDS = "system:system-crds"
SYSTEM_BOUND_CRDS = "system:bound-crds"

_CLUSTER = re.compile(r"[a-z0-9][a-z0-9-]{0,61}[a-z0-9]\Z")
_SYSTEM_CLUSTER = re.compile(r"system:[a-z0-9]([a-z0-9:-]{0,53}[a-z0-9])?\Z")
_PATH = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")


class ResourceType(msgspec.Struct, frozen=True, order=True, gc=False):
    """What is stored under one type number: group, plural resource and the identity that owns the schema.

    `identity` is CORE, LOCAL, or an APIExport's identity hash (64 lower-case hex digits).
    Versions are not part of it: an object is stored once, in its storage version.
    """

    group: str
    resource: str
    identity: str = CORE

    @property
    def group_resource(self) -> str:
        """`configmaps` or `workspaces.tenancy.kcp.io`, as Kubernetes messages print it."""
        return f"{self.resource}.{self.group}" if self.group else self.resource


class ObjectKey(msgspec.Struct, frozen=True, order=True, gc=False):
    """The key of one object. `namespace` is empty for cluster-scoped kinds."""

    type: ResourceType
    cluster: str
    namespace: str
    name: str


def is_cluster_name(text: str) -> bool:
    """Whether text may stand for exactly one logical cluster (an opaque id, `root`, or `system:...`)."""
    return bool(_CLUSTER.match(text) or _SYSTEM_CLUSTER.match(text))


def is_workspace_path(text: str) -> bool:
    """Whether text is a colon separated workspace path or a single cluster name."""
    return bool(_PATH.match(text) or _SYSTEM_CLUSTER.match(text))


def is_path_segment(text: str) -> bool:
    """Whether text may stand between the colons of a workspace path."""
    return ":" not in text and bool(_PATH.match(text))


def is_system_cluster(cluster: str) -> bool:
    """System clusters are reachable by system:masters only and never replicated."""
    return cluster.startswith("system:")
