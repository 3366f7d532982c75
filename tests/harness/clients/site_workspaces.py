"""Workspaces of a site: created on a shard by selector, and awaited until they are Ready."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any, Literal, overload

from harness.clients.api import Api, eventually

WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
CLUSTERS = "/apis/core.kcp.io/v1alpha1/logicalclusters"
CLUSTER = f"{CLUSTERS}/cluster"
SHARDS = "/apis/core.kcp.io/v1alpha1/shards"


def on(shard: str) -> dict[str, str]:
    """The label that selects a shard by name."""
    return {"name": shard}


@overload
def workspace(
    api: Api,
    *,
    name: str = "",
    type: str = "universal",
    selector: dict[str, str] | None = None,
    send: Literal[True] = True,
) -> str: ...
@overload
def workspace(
    api: Api, *, name: str = "", type: str = "universal", selector: dict[str, str] | None = None, send: Literal[False]
) -> dict[str, Any]: ...
def workspace(
    api: Api, *, name: str = "", type: str = "universal", selector: dict[str, str] | None = None, send: bool = True
) -> str | dict[str, Any]:
    """Create a workspace below that of `api`; return its name. With `send` false return the body only."""
    name = name or f"w-{uuid.uuid4().hex[:8]}"
    spec: dict[str, Any] = {"type": {"name": type, "path": "root"}}
    if selector is not None:
        spec["location"] = {"selector": {"matchLabels": selector}}
    body = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}, "spec": spec}
    if not send:
        return body
    api.post(WORKSPACES, body)
    return name


def ready(api: Api, name: str, phase: str = "Ready") -> dict[str, Any]:
    """A Workspace, once it is in a phase."""

    def look() -> dict[str, Any] | None:
        found: dict[str, Any] = api.get(f"{WORKSPACES}/{name}").json
        return found if (found.get("status") or {}).get("phase") == phase else None

    found: dict[str, Any] = eventually(look, f"{name} is {phase}", 60.0)
    return found


def led_to(api: Api) -> Api:
    """A client through a proxy, once that leads to its workspace: of a new one it hears later than the shard."""
    eventually(lambda: api.send("GET", "/api/v1/namespaces").code == 200, f"the proxy leads to {api.cluster}", 60.0)
    return api


def gone(api: Api, name: str) -> None:
    """Return once a Workspace is gone."""
    eventually(lambda: api.send("GET", f"{WORKSPACES}/{name}").code == 404, f"{name} is gone", 60.0)


def shard_of(obj: dict[str, Any]) -> str:
    return str(obj["metadata"]["annotations"]["core.kcp.io/shard"])


def condition(obj: dict[str, Any], type: str) -> dict[str, Any]:
    """A condition; {} if there is none."""
    conditions = (obj.get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == type), {})


def clusters(api: Api) -> dict[str, dict[str, Any]]:
    """LogicalClusters of a shard, by name; `api` reads `*` as a user of system:masters."""
    items = api.get(CLUSTERS).json["items"]
    return {item["metadata"]["annotations"]["kcp.io/cluster"]: item for item in items}


@contextlib.contextmanager
def marked(master: Api, shard: str, **metadata: dict[str, str]) -> Iterator[None]:
    """A Shard with more labels or annotations inside, restored afterwards."""
    master.patch(f"{SHARDS}/{shard}", {"metadata": metadata})
    try:
        yield
    finally:
        gone = {field: dict.fromkeys(values) for field, values in metadata.items()}
        master.patch(f"{SHARDS}/{shard}", {"metadata": gone})
