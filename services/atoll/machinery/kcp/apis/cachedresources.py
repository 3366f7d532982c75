"""ClusterCachedResources and their endpoint slices: compute their status.

A ClusterCachedResource offers the objects of one cluster-scoped resource of its workspace for reading on other shards;
a slice links it to the APIExport whose bindings give access. Controllers write the results; the replication view calls
`selector_of`. Invariant: a published identity hash does not change, and a slice whose references lie in two workspaces
has no endpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from atoll.machinery.kcp.apis import apiexports, endpointslices
from atoll.machinery.kcp.apis.endpointslices import Reference
from atoll.machinery.meta.conditions import ERROR, FALSE, TRUE, Condition, is_true, set_condition, with_conditions
from atoll.machinery.meta.objects import Object, conditions_of, spec_of, status_of
from atoll.machinery.meta.selectors import LabelSelector, SelectorError, compile_label_selector
from atoll.machinery.meta.wellknown import CLUSTER

FINALIZER = "cache.kcp.io/clustercachedresource"
INITIALIZING, READY, DELETING = "Initializing", "Ready", "Deleting"
RESOURCE_VALID, STARTED, IDENTITY_VALID = "ResourceValid", "ReplicationStarted", apiexports.IDENTITY_VALID
NO_RESOURCES, NOT_CLUSTER_SCOPED = "NoResources", "ResourceNotClusterScoped"
NOT_FOUND = "ClusterCachedResourceNotFound"
SLICE_API_VERSION, SLICE_KIND = "cache.kcp.io/v1alpha1", "ClusterCachedResourceEndpointSlice"
_NOTHING = LabelSelector(matches_nothing=True)


class Resource(NamedTuple):
    """The cached resource: group, version (empty: any), plural."""

    group: str
    version: str
    plural: str

    @property
    def group_resource(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


class ResourceCount(NamedTuple):
    """Scope of the resource in its workspace, and the number of selected objects."""

    namespaced: bool
    objects: int


def resource_of(obj: Object) -> Resource:
    """Return the resource that a ClusterCachedResource names."""
    spec = spec_of(obj)
    return Resource(spec.get("group") or "", spec.get("version") or "", str(spec.get("resource") or ""))


def selector_of(obj: Object) -> LabelSelector:
    """Return the label selector: everything where there is none, nothing where it is invalid."""
    selector = spec_of(obj).get("labelSelector")
    try:
        return LabelSelector() if selector is None else compile_label_selector(selector)
    except SelectorError:
        return _NOTHING


def desired_status(obj: Object, found: ResourceCount | None, now: str) -> Object:
    """Return the status; `found` None: the workspace does not serve the resource. Identity is set before this call."""
    status = dict(status_of(obj))
    resource_condition = _resource_condition(resource_of(obj), found)
    conditions = set_condition(conditions_of(obj), resource_condition, now)
    if found is None or resource_condition.status == FALSE:
        return {**status, "phase": status.get("phase") or INITIALIZING, "conditions": conditions}
    if not is_true(conditions, IDENTITY_VALID):
        return {**status, "phase": status.get("phase") or INITIALIZING, "conditions": conditions}
    conditions = set_condition(conditions, Condition(STARTED, TRUE, "Started"), now)
    counts = {"cache": found.objects, "local": found.objects}
    return {**status, "phase": READY, "conditions": conditions, "resourceCounts": counts}


def _resource_condition(resource: Resource, found: ResourceCount | None) -> Condition:
    if found is None:
        text = f"the workspace serves no {resource.group_resource} in version {resource.version or 'any'}"
        return Condition(RESOURCE_VALID, FALSE, NO_RESOURCES, text, ERROR)
    if found.namespaced:
        text = f"{resource.group_resource} is not cluster-scoped"
        return Condition(RESOURCE_VALID, FALSE, NOT_CLUSTER_SCOPED, text, ERROR)
    return Condition(RESOURCE_VALID, TRUE)


def offered_by(export: Object, cached: Object) -> bool:
    """Return whether an APIExport (v1alpha2) offers a ClusterCachedResource as a virtual resource with its identity."""
    resource, identity = resource_of(cached), status_of(cached).get("identityHash") or ""
    for each in spec_of(export).get("resources") or ():
        virtual = (each.get("storage") or {}).get("virtual")
        same = (each.get("group") or "", each["name"]) == (resource.group, resource.plural)
        if virtual and same and identity and virtual.get("identityHash") == identity:
            return True
    return False


# --- endpoint slices ---


def cached_of(obj: Object) -> Reference:
    """Return a slice's reference to its ClusterCachedResource: path or cluster name, and name."""
    reference = spec_of(obj).get("clusterCachedResource") or {}
    own = obj["metadata"]["annotations"][CLUSTER]
    return Reference(reference.get("path") or own, str(reference.get("name") or ""))


class SliceReferences(NamedTuple):
    """The resolved references of a slice: the clusters of both objects, and the Partition; None for a missing one."""

    cached: str | None
    export: str | None
    partition: Object | None
    #: The ClusterCachedResource itself exists in that cluster.
    is_cached: bool

    @property
    def in_one_workspace(self) -> bool:
        """Whether both objects are in one workspace: an export publishes no objects of another one."""
        return self.export is not None and self.export == self.cached


def desired_slice_status(obj: Object, references: SliceReferences, now: str) -> Object:
    """Return a slice's status. A slice with a missing reference, or with references in two workspaces, keeps no
    endpoints."""
    status = endpointslices.desired_status(
        obj, has_export=references.export is not None, partition=references.partition, now=now
    )
    condition = _slice_condition(cached_of(obj), references)
    if condition.status == FALSE or not references.in_one_workspace:
        status.pop("endpoints", None)
    status["conditions"] = [_renamed(each) for each in status.get("conditions") or []]
    return with_conditions(status, now, condition)


def _slice_condition(reference: Reference, references: SliceReferences) -> Condition:
    """Return the condition of the reference to the ClusterCachedResource; as in kcp, that of the export is another."""
    if not references.is_cached:
        text = f"Error getting ClusterCachedResource {reference.path}|{reference.name}"
        return Condition(RESOURCE_VALID, FALSE, NOT_FOUND, text, ERROR)
    return Condition(RESOURCE_VALID, TRUE)


def _renamed(condition: Object) -> Object:
    """Replace the reason: kcp uses another one here than in APIExportEndpointSlices."""
    if condition.get("reason") != endpointslices.EXPORT_NOT_FOUND:
        return condition
    return {**condition, "reason": "APIExportInvalidReference"}


def is_sound(obj: Object) -> bool:
    """Return whether a slice's ClusterCachedResource exists."""
    return is_true(conditions_of(obj), RESOURCE_VALID)


def endpoint_url(base: str, cluster: str, name: str) -> str:
    """Return the URL of a slice at a shard with this virtual workspace URL; `cluster` is the slice's."""
    return f"{base.rstrip('/')}/services/replication/{cluster}/{name}"


def apply_configuration(name: str, urls: Sequence[str]) -> Object:
    """Return the apply configuration with which a shard sets its URLs in a slice's status."""
    return {**endpointslices.apply_configuration(name, urls), "apiVersion": SLICE_API_VERSION, "kind": SLICE_KIND}
