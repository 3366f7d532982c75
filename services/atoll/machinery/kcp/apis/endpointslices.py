"""APIExportEndpointSlices: where the owner of an export finds the objects of its consumers, shard by shard.

The cluster that holds a slice says in its status whether the export and the Partition are there, and which shards
are meant; each of those shards then applies its own URL, and takes it away, under a field manager of its own. The
controllers bring objects here and write what comes back. Invariant: nothing here looks at, or touches, the entry of
another shard, but when what the slice refers to is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from atoll.machinery.meta import hashes
from atoll.machinery.meta.conditions import ERROR, FALSE, TRUE, Condition, is_true, set_condition
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.selectors import LabelSelector, SelectorError, compile_label_selector, parse_label_selector
from atoll.machinery.meta.wellknown import CLUSTER

EXPORT_VALID, PARTITION_VALID = "APIExportValid", "PartitionValid"
EXPORT_NOT_FOUND, INVALID_PARTITION = "APIExportNotFound", "PartitionInvalidReference"
API_VERSION, KIND = "apis.kcp.io/v1alpha1", "APIExportEndpointSlice"
#: By which a slice is found from its export, if it is not the one of the export's name beside it.
EXPORT_LABEL = "internal.apis.kcp.io/export-endpoints"
_EVERYTHING = LabelSelector()


class Reference(NamedTuple):
    """The export that a slice is for, as it says itself: a path or cluster name, and a name."""

    path: str
    name: str

    @property
    def label(self) -> str:
        """The value of EXPORT_LABEL: of the words used, which resolve to different clusters at different times."""
        return hashes.export_hash(self.path, self.name)


def reference_of(obj: Object, cluster: str = "") -> Reference:
    """A slice's reference; `cluster` is where the slice is, if its annotation does not say so yet."""
    export = (obj.get("spec") or {}).get("export") or {}
    own = cluster or obj["metadata"]["annotations"][CLUSTER]
    return Reference(export.get("path") or own, str(export.get("name") or ""))


def partition_of(obj: Object) -> str:
    """The name of the Partition that limits the shards, empty where none does."""
    return (obj.get("spec") or {}).get("partition") or ""


def desired_status(obj: Object, *, has_export: bool, partition: Object | None, now: str) -> Object:
    """A slice's status as its own cluster knows it; `partition` is the one it names, None where that is not there.

    What refers to nothing keeps no endpoints, whosever they are.
    """
    status, reference = dict(obj.get("status") or {}), reference_of(obj)
    if not has_export:
        text = f"Error getting APIExport {reference.path}|{reference.name}"
        return _cleared(status, Condition(EXPORT_VALID, FALSE, EXPORT_NOT_FOUND, text, ERROR), now)
    status = _with(status, Condition(EXPORT_VALID, TRUE), now)
    try:
        selector = _selector(partition_of(obj), partition)
    except SelectorError as error:
        return _cleared(status, Condition(PARTITION_VALID, FALSE, INVALID_PARTITION, error.message, ERROR), now)
    return {**_with(status, Condition(PARTITION_VALID, TRUE), now), "shardSelector": str(selector)}


def _selector(name: str, partition: Object | None) -> LabelSelector:
    if not name:
        return _EVERYTHING
    if partition is None:
        raise SelectorError(f'partition.topology.kcp.io "{name}" not found')
    # A Partition without a selector selects nothing, as everywhere in Kubernetes.
    return compile_label_selector((partition.get("spec") or {}).get("selector"))


def _cleared(status: Object, condition: Condition, now: str) -> Object:
    return _with({key: value for key, value in status.items() if key != "endpoints"}, condition, now)


def selects_shard(obj: Object, labels: Mapping[str, str]) -> bool:
    """Whether a slice is sound and means a shard with these labels."""
    status = obj.get("status") or {}
    conditions = status.get("conditions") or []
    if not is_true(conditions, EXPORT_VALID) or not is_true(conditions, PARTITION_VALID):
        return False
    try:
        return parse_label_selector(status.get("shardSelector") or "").matches(labels)
    except SelectorError:
        # Anybody who may write the status of his own slice may have put it there.
        return False


def endpoint_url(base: str, cluster: str, name: str) -> str:
    """Where a shard with this virtual workspace URL serves an export, by the name of its cluster."""
    return f"{base.rstrip('/')}/services/apiexport/{cluster}/{name}"


def owned_urls(obj: Object, manager: str) -> list[str]:
    """The endpoints that a shard has applied to a slice, as far as they are still there."""
    found: list[str] = []
    for entry in obj["metadata"].get("managedFields") or []:
        if (entry.get("manager"), entry.get("operation"), entry.get("subresource")) == (manager, "Apply", "status"):
            endpoints = ((entry.get("fieldsV1") or {}).get("f:status") or {}).get("f:endpoints") or {}
            found = [msgspec.json.decode(key[2:])["url"] for key in endpoints if key.startswith("k:")]
    there = {each["url"] for each in (obj.get("status") or {}).get("endpoints") or []}
    return sorted(there.intersection(found))


def abandoned_managers(obj: Object, path: str, shards: Collection[str]) -> list[str]:
    """The field managers of endpoints at `path` of some shard that are none of `shards`: shards that are no more.

    Who is not a shard and applied something else to a slice keeps it.
    """
    managers = {str(entry.get("manager")) for entry in obj["metadata"].get("managedFields") or []}
    gone = managers.difference(shards)
    return sorted(each for each in gone if any(url.endswith(path) for url in owned_urls(obj, each)))


def apply_configuration(name: str, urls: Sequence[str]) -> Object:
    """What a shard applies to a slice's status: its own URLs and nothing else; without any it gives up what it had."""
    status = {"status": {"endpoints": [{"url": url} for url in urls]}} if urls else {}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, **status}


def _with(status: Object, condition: Condition, now: str) -> Object:
    return {**status, "conditions": set_condition(status.get("conditions") or [], condition, now)}
