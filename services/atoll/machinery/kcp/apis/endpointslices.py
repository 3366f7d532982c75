"""APIExportEndpointSlices: the URLs at which an export's owner reaches the objects of consumers, one for each shard.

The shard of a slice sets conditions (whether export and Partition exist) and the shard selector; each selected shard
applies and removes its own URL under its own field manager. Controllers write the results. Invariant: no function
changes the URL of another shard, unless a reference of the slice is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from atoll.machinery.meta import hashes
from atoll.machinery.meta.conditions import ERROR, FALSE, TRUE, Condition, is_true, with_conditions
from atoll.machinery.meta.objects import Object, conditions_of, spec_of, status_of
from atoll.machinery.meta.selectors import LabelSelector, SelectorError, compile_label_selector, parse_label_selector
from atoll.machinery.meta.wellknown import CLUSTER

EXPORT_VALID, PARTITION_VALID = "APIExportValid", "PartitionValid"
EXPORT_NOT_FOUND, INVALID_PARTITION = "APIExportNotFound", "PartitionInvalidReference"
API_VERSION, KIND = "apis.kcp.io/v1alpha1", "APIExportEndpointSlice"
#: By which a slice is found from its export, if it is not the one of the export's name beside it.
EXPORT_LABEL = "internal.apis.kcp.io/export-endpoints"
_EVERYTHING = LabelSelector()


class Reference(NamedTuple):
    """A slice's reference to its export: a path or cluster name, and a name."""

    path: str
    name: str

    @property
    def label(self) -> str:
        """Return the value of EXPORT_LABEL: a hash of the reference as written; a path may change its cluster."""
        return hashes.export_hash(self.path, self.name)


def reference_of(obj: Object, cluster: str = "") -> Reference:
    """Return a slice's reference; `cluster` is the slice's own, where its annotation is not set yet."""
    export = spec_of(obj).get("export") or {}
    own = cluster or obj["metadata"]["annotations"][CLUSTER]
    return Reference(export.get("path") or own, str(export.get("name") or ""))


def partition_of(obj: Object) -> str:
    """Return the name of the slice's Partition; empty where it has none."""
    return spec_of(obj).get("partition") or ""


def desired_status(obj: Object, *, has_export: bool, partition: Object | None, now: str) -> Object:
    """Return a slice's status without this shard's endpoint; `partition` None: the Partition it names does not exist.

    A slice with a missing reference keeps no endpoints of any shard.
    """
    status, reference = dict(status_of(obj)), reference_of(obj)
    if not has_export:
        text = f"Error getting APIExport {reference.path}|{reference.name}"
        return _cleared(status, Condition(EXPORT_VALID, FALSE, EXPORT_NOT_FOUND, text, ERROR), now)
    status = with_conditions(status, now, Condition(EXPORT_VALID, TRUE))
    try:
        selector = _selector(partition_of(obj), partition)
    except SelectorError as error:
        return _cleared(status, Condition(PARTITION_VALID, FALSE, INVALID_PARTITION, error.message, ERROR), now)
    return {**with_conditions(status, now, Condition(PARTITION_VALID, TRUE)), "shardSelector": str(selector)}


def _selector(name: str, partition: Object | None) -> LabelSelector:
    if not name:
        return _EVERYTHING
    if partition is None:
        raise SelectorError(f'partition.topology.kcp.io "{name}" not found')
    # A Partition without a selector selects nothing.
    return compile_label_selector(spec_of(partition).get("selector"))


def _cleared(status: Object, condition: Condition, now: str) -> Object:
    return with_conditions({key: value for key, value in status.items() if key != "endpoints"}, now, condition)


def selects_shard(obj: Object, labels: Mapping[str, str]) -> bool:
    """Return whether a slice is valid and selects a shard with these labels."""
    status = status_of(obj)
    conditions = conditions_of(obj)
    if not is_true(conditions, EXPORT_VALID) or not is_true(conditions, PARTITION_VALID):
        return False
    try:
        return parse_label_selector(status.get("shardSelector") or "").matches(labels)
    except SelectorError:
        # Any user with write access to the status of a slice may have set it.
        return False


def endpoint_url(base: str, cluster: str, name: str) -> str:
    """Return the URL of an export at a shard with this virtual workspace URL; `cluster` is the export's."""
    return f"{base.rstrip('/')}/services/apiexport/{cluster}/{name}"


def owned_urls(obj: Object, manager: str) -> list[str]:
    """Return the endpoints of a slice that a shard applied under its field manager."""
    found: list[str] = []
    for entry in obj["metadata"].get("managedFields") or []:
        if (entry.get("manager"), entry.get("operation"), entry.get("subresource")) == (manager, "Apply", "status"):
            endpoints = ((entry.get("fieldsV1") or {}).get("f:status") or {}).get("f:endpoints") or {}
            found = [msgspec.json.decode(key[2:])["url"] for key in endpoints if key.startswith("k:")]
    there = {each["url"] for each in status_of(obj).get("endpoints") or []}
    return sorted(there.intersection(found))


def abandoned_managers(obj: Object, path: str, shards: Collection[str]) -> list[str]:
    """Return the field managers of endpoints at `path` that are not in `shards`: those of removed shards.

    Fields that other managers applied are not touched.
    """
    managers = {str(entry.get("manager")) for entry in obj["metadata"].get("managedFields") or []}
    gone = managers.difference(shards)
    return sorted(each for each in gone if any(url.endswith(path) for url in owned_urls(obj, each)))


def apply_configuration(name: str, urls: Sequence[str]) -> Object:
    """Return the apply configuration of a shard: its own URLs alone; an empty one removes what it applied before."""
    status = {"status": {"endpoints": [{"url": url} for url in urls]}} if urls else {}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, **status}
