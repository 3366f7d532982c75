"""Virtual storage: from an APIExport's resource to the endpoint that serves it for a shard.

An export names, for a resource of which nothing is stored, an object beside it whose `status.endpoints` lists URLs;
each says which shards it is for. `shard.virtualresources` brings the objects here. Pure. Invariant: what makes no sense
leads nowhere, for the object may be of any kind and anybody's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from atoll.machinery.kcp.sharding.shards import virtual_workspace_url
from atoll.machinery.meta.objects import Object, labels_of, spec_of
from atoll.machinery.meta.selectors import SelectorError, compile_label_selector

MAX_ENDPOINTS = 1000


class ShardEndpoint(NamedTuple):
    """A shard, as endpoints select it: its labels and the URL of its own virtual workspaces."""

    labels: Mapping[str, str]
    url: str


class Reference(NamedTuple):
    """An object in the export's workspace."""

    api_group: str
    kind: str
    name: str


def own_endpoint(shard: Object) -> ShardEndpoint:
    """Return the labels and virtual workspace URL of a Shard object."""
    return ShardEndpoint(labels_of(shard), virtual_workspace_url(shard))


def reference(export: Object, group: str, plural: str) -> Reference | None:
    """Return the virtual storage of an APIExport's (v1alpha2) resource; None if it is stored or not offered."""
    for each in spec_of(export).get("resources") or ():
        if (each.get("group") or "", each["name"]) == (group, plural):
            found = ((each.get("storage") or {}).get("virtual") or {}).get("reference")
            if not found:
                return None
            return Reference(found.get("apiGroup") or "", found.get("kind") or "", found.get("name") or "")
    return None


def endpoint(slice: Object, shard: ShardEndpoint) -> str:
    """Return the first endpoint for a shard; empty if there is none."""
    status = slice.get("status")
    endpoints = status.get("endpoints") if isinstance(status, dict) else None
    for each in endpoints[:MAX_ENDPOINTS] if isinstance(endpoints, list) else ():
        url = each.get("url") if isinstance(each, dict) else None
        if isinstance(url, str) and url and _is_for(each.get("shards"), url, shard):
            return url
    return ""


def _is_for(shards: object, url: str, shard: ShardEndpoint) -> bool:
    """Whether a selector of shards means this one; without one the URL is one of the shard's own."""
    if shards is None:
        return own_path(url, shard) is not None
    if not isinstance(shards, dict):
        return False
    if shards.get("matchAll"):
        return True
    selector = shards.get("selector")
    try:
        return isinstance(selector, dict) and compile_label_selector(selector).matches(shard.labels)
    except (SelectorError, AttributeError, TypeError, KeyError):
        return False


def own_path(url: str, shard: ShardEndpoint) -> str | None:
    """Return the path of a URL below the shard's own virtual workspaces; None for any other URL."""
    if not shard.url or not url.startswith(f"{shard.url}/"):
        return None
    return urlsplit(url).path.rstrip("/")
