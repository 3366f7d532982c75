"""The API of a shard as bytes and JSON: requests over one kept HTTPS connection, and watches.

Independent of the product's own client, so that a mistake made on both sides does not cancel out.

    api = Api(shard, cluster)
    api.post("/api/v1/namespaces", {...}, expect=201)
    with api.watch("/api/v1/configmaps?watch=1") as events:
        events.next()
"""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import ssl
import time
from collections.abc import Callable, Iterator
from email.message import Message
from functools import partial
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from harness.waits import pause_s, source_of

TIMEOUT_S = 60.0
#: For so long a patient client asks again where the server says that it cannot answer yet; then that is its answer.
PATIENCE_S = 30.0
#: A connection that was idle for longer is opened again: the server closes it after two minutes.
KEEP_S = 60.0
JSON, YAML = "application/json", "application/yaml"
MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"

Object = dict[str, Any]


class Answer(NamedTuple):
    """One response."""

    code: int
    headers: Message
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def header(self, name: str) -> str:
        return str(self.headers.get(name, ""))

    def asks_to_wait(self, expect: int) -> bool:
        """Whether the server cannot answer yet. A 429 may be the answer where nothing is expected."""
        is_early = self.code == 503 != expect or (self.code == 429 and expect not in (0, 429))
        return is_early and bool(self.header("retry-after"))

    @property
    def warnings(self) -> list[str]:
        """Texts of the Warning headers."""
        return [value.removeprefix('299 - "')[:-1].replace('\\"', '"') for value in self.headers.get_all("warning", [])]

    @property
    def message(self) -> str:
        """The message of a Status."""
        return str(self.json["message"])


class Server(Protocol):
    """A shard (`harness.servers.shard_process`), or a process of a site as one user (`harness.servers.site`)."""

    @property
    def url(self) -> str: ...

    def token(self, user: str = ...) -> str:
        """The bearer token of a user."""

    def tls(self) -> ssl.SSLContext: ...


class Api:
    """One user's requests to one cluster; `cluster` "" sends paths as they are.

    A patient one asks again where a 503 has a Retry-After, or a 429 where another code is expected, as client-go does.
    Those of a site are: there a shard may need the answer of a busy one. Who looks for the 503 itself asks `at_once`.
    """

    def __init__(
        self, shard: Server, cluster: str = "", user: str = "kcp-admin", token: str = "", patience_s: float = 0.0
    ) -> None:
        self.shard, self.cluster, self.patience_s = shard, cluster, patience_s
        self.token = token or (shard.token(user) if user else "")
        self.prefix = f"/clusters/{cluster}" if cluster else ""
        self._connection: http.client.HTTPSConnection | None = None
        self._used_s = 0.0

    def __del__(self) -> None:
        self.close()

    def at(self, cluster: str) -> Api:
        """The same user in another cluster."""
        return Api(self.shard, cluster, "", self.token, self.patience_s)

    def at_once(self) -> Api:
        """The same user in the same cluster, who takes the first answer."""
        return Api(self.shard, self.cluster, "", self.token)

    def open(self) -> http.client.HTTPSConnection:
        parts = urlsplit(self.shard.url)
        return http.client.HTTPSConnection(
            parts.hostname or "", parts.port, timeout=TIMEOUT_S, context=self.shard.tls()
        )

    def _is_over(self) -> bool:
        """Whether the server closed the idle connection, as a restart does: its FIN can be read."""
        sock = self._connection.sock if self._connection is not None else None
        return sock is not None and bool(select.select([sock], [], [], 0)[0])

    def headers(self, accept: str = "", more: dict[str, str] | None = None) -> dict[str, str]:
        found = {"User-Agent": "wire-test/1.0"}
        if self.token:
            found["Authorization"] = f"Bearer {self.token}"
        if accept:
            found["Accept"] = accept
        return {**found, **(more or {})}

    def send(  # noqa: PLR0913 - one request has this many parts
        self,
        method: str,
        path: str,
        body: Object | bytes | list[Any] | None = None,
        *,
        kind: str = "",
        accept: str = "",
        headers: dict[str, str] | None = None,
        expect: int = 0,
    ) -> Answer:
        """Send one request and read its answer; `kind` is the Content-Type. Fails unless the code is `expect`."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        sent = self.headers(accept, headers)
        if kind or data is not None:
            sent["Content-Type"] = kind or JSON
        began = time.monotonic()
        while (answer := self._answer(method, path, data, sent)).asks_to_wait(expect):
            waited_s = time.monotonic() - began
            if waited_s >= self.patience_s:
                break
            time.sleep(pause_s(waited_s))
        shown = answer.body[:2000].decode(errors="replace")
        assert not expect or answer.code == expect, f"{method} {path}: {answer.code}\n{shown}"
        return answer

    def _answer(self, method: str, path: str, data: bytes | None, headers: dict[str, str]) -> Answer:
        """Send one request once."""
        connection = self._kept()
        try:
            connection.request(method, self.prefix + path, data, headers)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        except BaseException:
            self.close()
            raise

    def _kept(self) -> http.client.HTTPSConnection:
        """The connection of the last request, or a new one."""
        if time.monotonic() - self._used_s > KEEP_S or self._is_over():
            self.close()
        self._connection = self._connection or self.open()
        self._used_s = time.monotonic()
        return self._connection

    def status(self, path: str) -> int:
        """The code of a GET with an endless reply, such as a watch; the body of a success is not read."""
        connection = self._kept()
        connection.request("GET", self.prefix + path, headers=self.headers())
        response = connection.getresponse()
        if response.status >= 400:
            response.read()
        else:
            self.close()
        return response.status

    def get(self, path: str, *, expect: int = 200, accept: str = "", headers: dict[str, str] | None = None) -> Answer:
        return self.send("GET", path, expect=expect, accept=accept, headers=headers)

    def post(self, path: str, body: Object | bytes, *, expect: int = 201, kind: str = "") -> Answer:
        return self.send("POST", path, body, expect=expect, kind=kind)

    def put(self, path: str, body: Object | bytes, *, expect: int = 200, kind: str = "") -> Answer:
        return self.send("PUT", path, body, expect=expect, kind=kind)

    def patch(self, path: str, body: Object | list[Any] | bytes, kind: str = MERGE, *, expect: int = 200) -> Answer:
        return self.send("PATCH", path, body, expect=expect, kind=kind)

    def delete(self, path: str, body: Object | None = None, *, expect: int = 200) -> Answer:
        return self.send("DELETE", path, body, expect=expect)

    @contextlib.contextmanager
    def watch(self, path: str, accept: str = "") -> Iterator[Events]:
        """The events of a watch; ends with the context."""
        connection = self.open()
        with contextlib.closing(connection):
            connection.request("GET", self.prefix + path, headers=self.headers(accept))
            response = connection.getresponse()
            assert response.status == 200, response.read()[:2000]
            assert response.headers["content-type"] == JSON
            yield Events(response)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Event(NamedTuple):
    """One event of a watch."""

    type: str
    object: Object

    @property
    def name(self) -> str:
        return str(self.object["metadata"].get("name", ""))

    @property
    def revision(self) -> int:
        return int(self.object["metadata"]["resourceVersion"])


class Events:
    """The events of a watch, in order."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    def next(self) -> Event:
        """The next event; fails after the connection's timeout, or if the stream ended."""
        line = self._response.readline()
        assert line, "the watch ended"
        event = json.loads(line)
        return Event(event["type"], event["object"])

    def until(self, type: str) -> Event:
        """The next event of a type."""
        while (event := self.next()).type != type:
            pass
        return event

    def take(self, count: int) -> list[Event]:
        return [self.next() for _ in range(count)]

    def rest(self) -> list[Event]:
        """All events until the server ends the stream."""
        events = (json.loads(line) for line in self._response.readlines())
        return [Event(event["type"], event["object"]) for event in events]


def eventually(check: Callable[[], Any], what: str = "", timeout_s: float = 0.0) -> Any:
    """The first truthy value of `check`; fails after `timeout_s`, TIMEOUT_S where none is given."""
    began = time.monotonic()
    while not (found := check()):
        waited_s = time.monotonic() - began
        assert waited_s < (timeout_s or TIMEOUT_S), f"never came: {what} ({source_of(check)})"
        time.sleep(pause_s(waited_s))
    return found


def configmap(name: str, data: dict[str, str] | None = None, **metadata: Any) -> Object:
    """A ConfigMap to send."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": data or {}}


def workspace_under(api: Api, parent: str = "root", type_: str = "") -> str:
    """A new Ready workspace of a generated name: its path."""
    spec: Object = {"type": {"name": type_, "path": "root"}} if type_ else {}
    body = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"generateName": "w-"}}
    there = api.at(parent)
    path = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
    name = there.post(path, {**body, "spec": spec}).json["metadata"]["name"]

    def ready() -> bool:
        return bool(there.get(f"{path}/{name}").json.get("status", {}).get("phase") == "Ready")

    eventually(ready, f"workspace {parent}:{name} Ready")
    there.close()
    return f"{parent}:{name}"


def crd(plural: str, group: str = "shapes.example.com", **spec: Any) -> Object:
    """A CustomResourceDefinition with one version v1 that has spec, status and scale."""
    kind = plural.removesuffix("s").capitalize()
    integer = {"type": "integer"}
    properties = {
        "spec": {
            "type": "object",
            "properties": {
                "replicas": integer,
                "colour": {"type": "string"},
                "size": {"type": "integer", "default": 7},
            },
        },
        "status": {"type": "object", "properties": {"replicas": integer, "selector": {"type": "string"}}},
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [{"name": "Colour", "type": "string", "jsonPath": ".spec.colour"}],
    }
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    full = {"group": group, "scope": "Namespaced", "names": names, "versions": [version], **spec}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": full,
    }


CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def define(api: Api, definition: Object) -> Object:
    """Create a CustomResourceDefinition and wait until it is served."""
    api.post(CRDS, definition)
    name, spec = definition["metadata"]["name"], definition["spec"]
    plural = spec["names"]["plural"]
    served = [version["name"] for version in spec["versions"] if version["served"]]
    for version in served:
        path = f"/apis/{spec['group']}/{version}/{plural}"
        eventually(partial(lambda path: api.get(path, expect=0).code == 200, path), f"{path} served")
    return dict(api.get(f"{CRDS}/{name}").json)
