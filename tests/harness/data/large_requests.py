"""Requests that are large, or small and costly: none of them may keep a shard from answering others.

`tests/integration/security/test_event_loop` sends each of them while it asks for /livez. To add one, append it to
`REQUESTS`; paths are those of one workspace that defines `BLOBS` and has the objects of `PREPARED`.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from harness.clients.api import JSON, YAML, Api, configmap, crd, define

MIB = 1 << 20
BLOBS = "/apis/bulk.example.com/v1/namespaces/default/blobs"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


class LargeRequest(NamedTuple):
    """One request of the corpus; `code` is that of its answer."""

    name: str
    method: str
    path: str
    code: int
    body: bytes | None = None
    kind: str = JSON
    accept: str = ""

    def send(self, api: Api) -> None:
        """Send the request; fails unless the answer has the code."""
        kind = self.kind if self.body is not None else ""
        api.send(self.method, self.path, self.body, kind=kind, accept=self.accept, expect=self.code)


def _blob(name: str, value: bytes) -> bytes:
    """A Blob with JSON in a field without a schema."""
    head = {"apiVersion": "bulk.example.com/v1", "kind": "Blob", "metadata": {"name": name}}
    return json.dumps(head).encode()[:-1] + b',"data":' + value + b"}"


def _list(item: bytes, size_bytes: int) -> bytes:
    """A JSON list of about so many bytes."""
    return b"[" + b",".join([item] * (size_bytes // (len(item) + 1))) + b"]"


def _mapping(size_bytes: int, start: str = "k") -> bytes:
    return json.dumps({f"{start}{at:08d}": "v" for at in range(size_bytes // 17)}).encode()


#: Created before the requests are sent.
PREPARED = (
    (BLOBS, _blob("arr", _list(b"1", MIB))),
    (BLOBS, _blob("keys", _mapping(MIB))),
    (CONFIGMAPS, json.dumps(configmap("text", {f"key-{at}": f"value {at}" for at in range(30_000)})).encode()),
    (CONFIGMAPS, json.dumps(configmap("lines", {"lines": "a line\n" * 100_000})).encode()),
)

REQUESTS = (
    # YAML out
    LargeRequest("YAML of a list of numbers", "GET", f"{BLOBS}/arr", 200, accept=YAML),
    LargeRequest("YAML of a mapping", "GET", f"{BLOBS}/keys", 200, accept=YAML),
    LargeRequest("YAML of a ConfigMap", "GET", f"{CONFIGMAPS}/text", 200, accept=YAML),
    LargeRequest("YAML of long texts", "GET", f"{CONFIGMAPS}/lines", 200, accept=YAML),
    LargeRequest("YAML of a list of objects", "GET", BLOBS, 200, accept=YAML),
    LargeRequest("YAML of ConfigMaps", "GET", CONFIGMAPS, 200, accept=YAML),
)  # fmt: skip


def prepare(api: Api) -> None:
    """Define the kind and create the objects that the requests read."""
    definition = crd("blobs", "bulk.example.com")
    version: Any = definition["spec"]["versions"][0]
    version["schema"]["openAPIV3Schema"]["properties"]["data"] = {"x-kubernetes-preserve-unknown-fields": True}
    define(api, definition)
    for path, body in PREPARED:
        api.post(path, body)
