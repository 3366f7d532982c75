"""Requests to an API server: get, list, create, update, patch, apply, delete, watch, in one cluster or all.

Errors are the server's own classes (`meta.status`), rebuilt from the Status it sent. Objects are open JSON. One
client holds one pool of connections; `cluster` gives views of it that share the pool.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from urllib.parse import quote, urlencode

import msgspec

from atoll.machinery.client.kubeconfig import Kubeconfig, Target
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.meta.status import ApiError, from_status
from atoll.machinery.wire.client import ClientStream, HttpClient, Origin
from atoll.machinery.wire.incoming import ClientLimits

USER_AGENT = "atoll"
JSON, MERGE, APPLY = "application/json", "application/merge-patch+json", "application/apply-patch+yaml"
WILDCARD = "*"
#: A watch that is silent longer than this is taken for dead; servers send bookmarks every minute.
WATCH_IDLE_S = 150.0
_decode = msgspec.json.Decoder().decode


class Resource(msgspec.Struct, frozen=True):
    """What to speak about: group, version, plural. `identity` for wildcard requests on exported APIs."""

    group: str
    version: str
    plural: str
    namespaced: bool = True
    identity: str = ""

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Its path below a cluster; an empty namespace means all of them."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(f"{self.plural}:{self.identity}" if self.identity else self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/" + "/".join(quote(part, safe=":") for part in parts)


class WatchEvent(msgspec.Struct, frozen=True):
    """One event of a watch. `type` is ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    type: str
    object: Object


class Client:
    """A client of one server, looking at one logical cluster. Use as an async context manager, or `close`."""

    def __init__(self, target: Target, cluster: str = "", *, http: HttpClient | None = None, manager: str = USER_AGENT) -> None:
        self.target, self._manager = target, manager
        origin = Origin(target.host, target.port, target.tls, target.server_name)
        self._http = http or HttpClient(origin, ClientLimits())
        self._owns_http = http is None
        self._prefix = f"/clusters/{cluster}" if cluster else target.path

    @classmethod
    def from_kubeconfig(cls, path: str = "", context: str = "", cluster: str = "", manager: str = USER_AGENT) -> Client:
        """A client for a context of a kubeconfig. Raises KubeconfigError."""
        return cls(Kubeconfig.load(path).target(context), cluster, manager=manager)

    def cluster(self, cluster: str) -> Client:
        """The same connection, looking at another path, name or `*`."""
        return Client(self.target, cluster, http=self._http, manager=self._manager)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the pool, if it is this client's own."""
        if self._owns_http:
            await self._http.close()

    # --- one request ---

    async def raw(self, method: str, path: str, query: Mapping[str, str] | None = None, body: bytes = b"",
                  content_type: str = JSON) -> bytes:  # fmt: skip
        """Send a request to a path below the cluster; the body of a good answer. Raises ApiError otherwise."""
        target = self._prefix + path + (f"?{urlencode(query)}" if query else "")
        headers = [*self.target.headers, ("user-agent", self._manager), ("accept", JSON)]
        if body:
            headers.append(("content-type", content_type))
        response = await self._http.request(method, target, headers, body)
        if response.status >= 300:
            raise _error(response.status, response.body)
        return response.body

    async def request(self, method: str, path: str, query: Mapping[str, str] | None = None, body: Object | None = None,
                      content_type: str = JSON) -> Object:  # fmt: skip
        """As `raw`, with JSON both ways."""
        data = encode_json(body) if body is not None else b""
        answer: Object = _decode(await self.raw(method, path, query, data, content_type))
        return answer

    # --- verbs ---

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        return await self.request("GET", resource.path(namespace, name))

    async def list(self, resource: Resource, namespace: str = "", **options: str) -> Object:
        """A whole list; continues by itself where `limit` is given."""
        found = await self.request("GET", resource.path(namespace), options)
        token = found["metadata"].get("continue")
        while token:
            more = await self.request("GET", resource.path(namespace), {**options, "continue": token})
            found["items"].extend(more["items"])
            token = more["metadata"].get("continue")
        found["metadata"].pop("continue", None)
        return found

    async def create(self, resource: Resource, obj: Object, namespace: str = "") -> Object:
        return await self.request("POST", resource.path(namespace), self._owned(), obj)

    async def update(self, resource: Resource, obj: Object, subresource: str = "") -> Object:
        metadata = obj["metadata"]
        path = resource.path(metadata.get("namespace", ""), metadata["name"], subresource)
        return await self.request("PUT", path, self._owned(), obj)

    async def patch(self, resource: Resource, name: str, patch: Object, namespace: str = "", subresource: str = "") -> Object:
        """A merge patch."""
        return await self.request("PATCH", resource.path(namespace, name, subresource), self._owned(), patch, MERGE)

    async def apply(self, resource: Resource, obj: Object, *, force: bool = True, subresource: str = "") -> Object:
        """Server-side apply under this client's field manager."""
        metadata = obj["metadata"]
        path = resource.path(metadata.get("namespace", ""), metadata["name"], subresource)
        query = {**self._owned(), "force": "true" if force else "false"}
        return await self.request("PATCH", path, query, obj, APPLY)

    async def delete(self, resource: Resource, name: str, namespace: str = "", **options: str) -> Object:
        return await self.request("DELETE", resource.path(namespace, name), options)

    def _owned(self) -> dict[str, str]:
        return {"fieldManager": self._manager}

    # --- watching ---

    @asynccontextmanager
    async def watch(self, resource: Resource, namespace: str = "", **options: str) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """Events of a watch, for as long as the context is open.

        Ends when the server ends it; raises the server's error for a refusal, ConnectionLost when it breaks.
        """
        query = {"watch": "true", "allowWatchBookmarks": "true", **options}
        target = f"{self._prefix}{resource.path(namespace)}?{urlencode(query)}"
        headers = [*self.target.headers, ("user-agent", self._manager), ("accept", JSON)]
        async with await self._http.stream("GET", target, headers, idle_timeout_s=WATCH_IDLE_S) as stream:
            if stream.status >= 300:
                raise _error(stream.status, await stream.read())
            yield _events(stream)


async def _events(stream: ClientStream) -> AsyncIterator[WatchEvent]:
    async for line in stream.lines():
        if line:
            yield msgspec.convert(_decode(line), WatchEvent)


def _error(status: int, body: bytes) -> ApiError:
    """The error of an answer; one that is no Status keeps its code and the start of its text."""
    try:
        found = _decode(body)
    except msgspec.DecodeError:
        found = None
    if isinstance(found, dict) and found.get("kind") == "Status":
        return from_status(found)
    return ApiError(body[:200].decode(errors="replace") or f"HTTP {status}", code=status, reason="")
