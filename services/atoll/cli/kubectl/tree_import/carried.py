"""What of an object is carried into another site, and its references to what has another name there. Pure.

The steps call this on objects of both sides, so that equal results mean equal content. Invariant: what a server sets by
itself (uids, revisions, computed labels, the status) is not in the result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

import msgspec

from atoll.machinery.meta import wellknown
from atoll.machinery.meta.objects import Object, annotations_of, labels_of, owner_references_of

#: Domains of labels and annotations that servers compute, and of finalizers that they set.
_COMPUTED = ("internal.kcp.io", "internal.apis.kcp.io", "internal.tenancy.kcp.io", "internal.atoll.dev")
_COMPUTED_KEYS = frozenset(
    [wellknown.CLUSTER, wellknown.PATH, wellknown.SHARD, wellknown.OWNER, wellknown.PHASE, wellknown.REQUIRED_GROUPS]
)
_SYSTEM_DOMAINS = frozenset(["core.kcp.io", "apis.kcp.io", "cache.kcp.io", "tenancy.kcp.io", "kcp.io"])
_PROPAGATION = frozenset(["foregroundDeletion", "orphan"])
_METADATA = ("name", "namespace", "labels", "annotations", "finalizers", "ownerReferences")
_ACCOUNT, _CLUSTER_GROUP = "system:kcp:serviceaccount:", "system:cluster:"
#: The type of Secrets with tokens of service accounts, which only their own site believes.
TOKEN = "kubernetes.io/service-account-token"


class Names:
    """What has another name in the site: logical clusters by their paths, and identities of the exports of `root`."""

    def __init__(self) -> None:
        self.paths: dict[str, str] = {}
        self.clusters: dict[str, str] = {}
        self.identities: dict[str, str] = {}

    def path(self, place: str) -> str:
        """Return the path of a workspace that is named by its path or its logical cluster."""
        return self.paths.get(place, place)

    def subject(self, name: str) -> str:
        """Return the user or group of RBAC that means the same account or workspace in the site."""
        for lead in (_ACCOUNT, _CLUSTER_GROUP):
            cluster, colon, rest = name.removeprefix(lead).partition(":")
            if name.startswith(lead) and cluster in self.clusters:
                return lead + self.clusters[cluster] + colon + rest
        return name


def carried(obj: Object) -> Object:
    """Return what of an object is content, in a copy; references are not changed."""
    found = {key: value for key, value in obj.items() if key not in {"metadata", "status"}}
    metadata = {key: obj["metadata"][key] for key in _METADATA if obj["metadata"].get(key)}
    kind = obj.get("kind")
    for field, values in (("labels", labels_of(obj)), ("annotations", annotations_of(obj))):
        kept = {key: value for key, value in values.items() if not _is_computed(key)}
        if kind == "Workspace":
            kept.pop(wellknown.REGION, None)
        _set(metadata, field, kept)
    names = metadata.get("finalizers") or ()
    _set(metadata, "finalizers", [name for name in names if not _is_system_finalizer(name)])
    if kind == "Workspace":
        found["spec"] = {key: value for key, value in obj["spec"].items() if key not in {"cluster", "URL"}}
    elif kind == "Namespace":
        found.pop("spec", None)
    elif kind == "SinglePlacementSlice":
        # The edge service of the site says where placements go.
        found["destinations"] = []
    return {**found, "metadata": metadata}


def translated(obj: Object, names: Names) -> Object:
    """Return carried content with the names of the site; the argument is not changed."""
    found: Object = msgspec.json.decode(msgspec.json.encode(obj))
    for place in _places(found):
        if place.get("path"):
            place["path"] = names.path(place["path"])
    for holder in _identity_holders(found):
        if holder.get("identityHash"):
            holder["identityHash"] = names.identities.get(holder["identityHash"], holder["identityHash"])
    if found["kind"] in {"ClusterRoleBinding", "RoleBinding"}:
        for subject in found.get("subjects") or ():
            subject["name"] = names.subject(subject["name"])
    return found


def with_owners(obj: Object, uid_of: Callable[[Object], str]) -> Object:
    """Return content with the owners' uids in the site; an owner without one is left out."""
    owners = [{**each, "uid": uid} for each in owner_references_of(obj) if (uid := uid_of(each))]
    metadata = {key: value for key, value in obj["metadata"].items() if key != "ownerReferences"}
    _set(metadata, "ownerReferences", owners)
    return {**obj, "metadata": metadata}


def digest(content: Object) -> bytes:
    """Return a hash that is equal for equal content."""
    return hashlib.blake2b(msgspec.json.encode(content, order="deterministic"), digest_size=16).digest()


def _is_computed(key: str) -> bool:
    domain = key.rpartition("/")[0]
    return key in _COMPUTED_KEYS or any(domain == each or domain.endswith(f".{each}") for each in _COMPUTED)


def _is_system_finalizer(name: str) -> bool:
    return name in _PROPAGATION or name.partition("/")[0] in _SYSTEM_DOMAINS or _is_computed(name)


def _set(metadata: Object, field: str, value: object) -> None:
    """Set a field, or remove it if the value is empty."""
    if value:
        metadata[field] = value
    else:
        metadata.pop(field, None)


def _places(obj: Object) -> Iterator[Object]:
    """Yield the references to workspaces of a kind of kcp."""
    spec = obj.get("spec") or {}
    match obj["kind"]:
        case "Workspace":
            yield spec.get("type") or {}
        case "WorkspaceType":
            yield from (spec.get("extend") or {}).get("with") or ()
            yield from spec.get("defaultAPIBindings") or ()
            yield spec.get("defaultChildWorkspaceType") or {}
            for field in ("limitAllowedChildren", "limitAllowedParents"):
                yield from (spec.get(field) or {}).get("types") or ()
        case "APIBinding":
            yield (spec.get("reference") or {}).get("export") or {}
        case "APIExportEndpointSlice":
            yield spec.get("export") or {}
        case "ClusterCachedResourceEndpointSlice":
            yield spec.get("export") or {}
            yield spec.get("clusterCachedResource") or {}


def _identity_holders(obj: Object) -> Iterator[Object]:
    """Yield what names an identity in an export or a binding."""
    if obj["kind"] not in {"APIExport", "APIBinding"}:
        return
    spec = obj.get("spec") or {}
    yield from spec.get("permissionClaims") or ()
    for each in spec.get("resources") or ():
        yield (each.get("storage") or {}).get("virtual") or {}
