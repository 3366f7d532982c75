"""Denaturing: kinds that would be in effect in the center are stored there under an identity of their own.

The edge view and the mailbox view translate types with these functions, reads and writes alike. RBAC, admission, quotas
and account controllers look up CORE types, so they never see what is stored as IDENTITY. Invariant: the two functions
are each other's inverse, and no view shows a workspace's own objects of such a kind.
"""

from __future__ import annotations

from atoll.machinery.edge.categories import DENATURED, category_of
from atoll.machinery.meta.names import CORE, ResourceType

#: Identity of the stored types, in the place of CORE or of an export's hash.
IDENTITY = "edge-denatured"


def is_denatured(group: str, resource: str) -> bool:
    """Whether objects of a kind that are made in the edge view are stored apart."""
    return category_of(group, resource) == DENATURED


def stored_type(served: ResourceType) -> ResourceType:
    """Return the type under which a view reads and writes what it shows as this one."""
    return ResourceType(served.group, served.resource, IDENTITY) if is_denatured(*_kind(served)) else served


def served_type(stored: ResourceType) -> ResourceType | None:
    """Return the type as which a view shows stored objects; None for a workspace's own ones of a denatured kind."""
    if stored.identity == IDENTITY:
        return ResourceType(stored.group, stored.resource, CORE)
    return None if is_denatured(*_kind(stored)) else stored


def _kind(type: ResourceType) -> tuple[str, str]:
    return type.group, type.resource
