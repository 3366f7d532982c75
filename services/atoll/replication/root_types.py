"""The resource types of root's own exports, whose identity hashes differ from site to site.

Followers, the front proxy and the cache server need them to recognise Workspaces and Shards. Invariant: None until both
exports are known, so nothing is matched by half of a pair.
"""

from __future__ import annotations

import msgspec

from atoll.machinery.meta.names import ROOT, ObjectKey, ResourceType
from atoll.machinery.meta.types import API_EXPORTS
from atoll.machinery.storage.contract import Record, ReplicaView

_TENANCY, _SHARDS = "tenancy.kcp.io", "shards.core.kcp.io"


class RootTypes(msgspec.Struct, frozen=True):
    """Workspaces and Shards, under the identities of root's exports."""

    workspaces: ResourceType
    shards: ResourceType


def root_types(tenancy: str, shards: str) -> RootTypes:
    """The types for the identity hashes of the exports `tenancy.kcp.io` and `shards.core.kcp.io`."""
    return RootTypes(ResourceType(_TENANCY, "workspaces", tenancy), ResourceType("core.kcp.io", "shards", shards))


class _Status(msgspec.Struct, frozen=True):
    identityHash: str = ""


class _Export(msgspec.Struct, frozen=True):
    status: _Status = _Status()


_exports = msgspec.json.Decoder(_Export)


def learn_root_types(replicas: ReplicaView) -> RootTypes | None:
    """The types according to the replicas of root's exports; None until both have arrived."""
    hashes = [_identity(replicas.get(ObjectKey(API_EXPORTS, ROOT, "", name))) for name in (_TENANCY, _SHARDS)]
    return root_types(*hashes) if all(hashes) else None


def _identity(export: Record | None) -> str:
    return _exports.decode(export.value).status.identityHash if export is not None else ""
