"""Requests to an API server: get, list, create, update, patch, apply, delete, watch, in one cluster or all.

Used by plug-ins, tests, benchmarks and third parties; goes on to `wire.client`. Errors are the server's own classes
(`meta.status`), rebuilt from the Status it sent. Objects are open JSON. Invariant: a request is sent again only where
the server did nothing (429 and 503 with Retry-After), a bounded number of times.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import cache
from types import TracebackType
from typing import TypeAlias, cast
from urllib.parse import urlencode, urlsplit

import msgspec

from atoll.machinery.client.kubeconfig import Kubeconfig, Target
from atoll.machinery.client.resource import Resource, WatchEvent
from atoll.machinery.client.target import Fenced
from atoll.machinery.client.waves import Waves
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.meta.status import ApiError, from_status
from atoll.machinery.meta.wellknown import FENCE_HEADER, FENCED_CODE
from atoll.machinery.wire.client import BadResponse, ClientResponse, ClientStream, HttpClient, Origin
from atoll.machinery.wire.exchange import Headers
from atoll.machinery.wire.pending_response import ClientLimits

USER_AGENT = "atoll"
JSON, MERGE, APPLY = "application/json", "application/merge-patch+json", "application/apply-patch+yaml"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_METADATA_LIST = METADATA.replace("Metadata;", "MetadataList;")
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
WILDCARD = "*"
#: Servers send bookmarks every minute.
WATCH_IDLE_S = 150.0
RETRIES, MAX_RETRY_AFTER_S = 5, 10.0
#: The parameters of a URL; as pairs, one may be there several times.
Query: TypeAlias = Mapping[str, str] | Sequence[tuple[str, str]]
_decode = msgspec.json.Decoder().decode
_DecodeEvent: TypeAlias = Callable[[bytes], WatchEvent]
_decode_event: _DecodeEvent = msgspec.json.Decoder(WatchEvent).decode


class Client:
    """A client of one logical cluster of one server. Use as an async context manager, or `close`.

    `cluster` is a name, a path or `*`; empty takes that of the target's URL. `manager` is the field manager of writes.
    `retries` is how often a server that says when to come back is asked again. Must be made inside a running event
    loop. All verbs raise ApiError (the class of the Status' reason), and `wire.client`'s Unreachable, ConnectionLost
    and BadResponse, and TimeoutError after the limits' request time.
    """

    #: Seconds of silence after which a watch counts as broken.
    watch_idle_s = WATCH_IDLE_S

    def __init__(
        self,
        target: Target,
        cluster: str = "",
        *,
        http: HttpClient | None = None,
        manager: str = USER_AGENT,
        retries: int = RETRIES,
        limits: ClientLimits | None = None,
    ) -> None:
        self.target, self._manager, self._retries = target, manager, retries
        origin = Origin(target.host, target.port, target.tls, target.server_name)
        self._http = http or HttpClient(origin, limits or ClientLimits())
        self._owns_http = http is None
        #: What lists and watches bring.
        self._accept = JSON, JSON
        self._decode_event = _decode_event
        self._prefix = target.path_of(cluster) if cluster else target.path

    @classmethod
    def from_kubeconfig(cls, path: str = "", context: str = "", cluster: str = "", manager: str = USER_AGENT) -> Client:
        """A client for a context of a kubeconfig. Raises KubeconfigError."""
        return cls(Kubeconfig.load(path).target(context), cluster, manager=manager)

    def cluster(self, cluster: str) -> Client:
        """Return a client of another path, name or `*` over the same connections. It closes with this client."""
        return Client(self.target, cluster, http=self._http, manager=self._manager, retries=self._retries)

    def impersonating(self, headers: Headers, cluster: str) -> Client:
        """Return a client of a cluster that sends Impersonate-* headers. It closes with this client."""
        target = msgspec.structs.replace(self.target, headers=(*self.target.headers, *headers))
        return Client(target, cluster, http=self._http, manager=self._manager, retries=self._retries)

    def view(self, url: str, cluster: str = WILDCARD) -> Client:
        """Return a client of another URL, such as that of a virtual workspace, with the same credentials.

        It shares the connections if the server is the same; otherwise the caller closes it.
        """
        parts = urlsplit(url)
        place = parts.hostname or self.target.host, parts.port or self.target.port
        target = msgspec.structs.replace(self.target, host=place[0], port=place[1], path=parts.path.rstrip("/"))
        shared = self._http if place == (self.target.host, self.target.port) else None
        return Client(target, cluster, http=shared, manager=self._manager, retries=self._retries)

    def within(self, waves: Waves) -> Client:
        """Return a client whose writes leave in waves. It closes with this client."""
        target = msgspec.structs.replace(self.target, waves=waves)
        found = Client(target, http=self._http, manager=self._manager, retries=self._retries)
        found._prefix = self._prefix
        return found

    def metadata(self) -> Client:
        """Return a client whose lists and watches bring objects by their metadata alone. It closes with this client."""
        found = Client(self.target, http=self._http, manager=self._manager, retries=self._retries)
        found._prefix, found.watch_idle_s = self._prefix, self.watch_idle_s
        found._accept = _METADATA_LIST, METADATA
        return found

    def reduced(self, shape: type) -> Client:
        """Return a client whose watches bring of objects what a TypedDict has. It closes with this client.

        The server sends all of them; the rest is passed by undecoded.
        """
        found = Client(self.target, http=self._http, manager=self._manager, retries=self._retries)
        found._prefix, found.watch_idle_s = self._prefix, self.watch_idle_s
        found._decode_event = _decoder_of(shape)
        return found

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the pool, if it is this client's own. Requests under way fail."""
        if self._owns_http:
            await self._http.close()

    # --- one request

    async def raw(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        content_type: str = JSON,
    ) -> bytes:
        """Send a request to a path below the cluster; the body of a good answer."""
        return (await self.exchange(method, path, query, body, content_type)).body

    async def exchange(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        content_type: str = JSON,
    ) -> ClientResponse:
        """As `raw`; the whole of a good answer."""
        headers = self._headers((("content-type", content_type),) if body else ())
        return await self._send(method, self._target(path, query), headers, body)

    async def discover(self, path: str) -> Object:
        """Return the groups, versions and resources below `/api` or `/apis` in one document."""
        headers = (*self.target.headers, ("user-agent", self._manager), ("accept", DISCOVERY))
        return _object((await self._send("GET", self._target(path, None), headers, b"")).body)

    async def _send(
        self, method: str, target: str, headers: Headers, body: bytes, *, is_long: bool = False
    ) -> ClientResponse:
        ask = self._read if is_long else self._http.request
        fence, waves = (None, None) if method == "GET" else (self.target.fence, self.target.waves)
        for attempt in range(self._retries + 1):
            if waves is not None:
                await waves.join()
            token = ((FENCE_HEADER, str(fence.token())),) if fence is not None else ()
            response = await ask(method, target, (*headers, *token), body)
            if response.status < 300:
                return response
            if fence is not None and response.status == FENCED_CODE:
                await fence.refused()
                if attempt == self._retries:
                    raise Fenced("newer fencing tokens were used each time")
                continue
            delay_s = _come_back_s(response)
            if delay_s is None or attempt == self._retries:
                break
            await asyncio.sleep(delay_s)
        raise _error(response.status, response.body)

    async def _read(self, method: str, target: str, headers: Headers, body: bytes) -> ClientResponse:
        """The whole of an answer that may take any time, but must not be silent for that of a request."""
        silence_s = self._http.limits.request_timeout_s
        async with await self._http.stream(method, target, headers, body, idle_timeout_s=silence_s) as stream:
            return ClientResponse(stream.status, stream.headers, await stream.read())

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content_type: str = JSON,
    ) -> Object:
        """As `raw`, with JSON both ways."""
        data = encode_json(body) if body is not None else b""
        return _object(await self.raw(method, path, query, data, content_type))

    # --- verbs

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        """Return one object. Raises NotFound."""
        return await self.request("GET", resource.path(namespace, name))

    async def list(self, resource: Resource, namespace: str = "", **options: str) -> Object:
        """Return a whole list at one revision; `limit` fetches it in pages. Every item has apiVersion and kind.

        Raises Expired if the list took longer than the server keeps its revision; begin again then.
        """
        found: Object = {}
        async for page in self.pages(resource, namespace, **options):
            found = {**page, "items": [*found["items"], *page["items"]]} if found else page
        found["metadata"].pop("continue", None)
        found["metadata"].pop("remainingItemCount", None)
        return found

    async def pages(self, resource: Resource, namespace: str = "", **options: str) -> AsyncGenerator[Object, None]:
        """Yield the pages of a list, of `limit` items each; as `list`."""
        token = ""
        while True:
            query = {**options, "continue": token} if token else options
            page = await self.page(resource.path(namespace), query)
            token = page["metadata"].get("continue", "")
            _complete(page)
            yield page
            if not token:
                return

    async def page(self, path: str, query: Mapping[str, str]) -> Object:
        """Return one page of a list as it is, which a slow line brings in any time."""
        return _object((await self._send("GET", self._target(path, query), self._headers(), b"", is_long=True)).body)

    async def create(self, resource: Resource, obj: Object, namespace: str = "") -> Object:
        """Create an object and return it as stored. `namespace` defaults to the object's own. Raises AlreadyExists."""
        namespace = namespace or obj["metadata"].get("namespace", "")
        return await self.request("POST", resource.path(namespace), self._owned(), obj)

    async def update(self, resource: Resource, obj: Object, subresource: str = "") -> Object:
        """Replace an object; with a resourceVersion in it, only if it is still current. Raises Conflict."""
        return await self.request("PUT", _path_of(resource, obj, subresource), self._owned(), obj)

    async def patch(
        self, resource: Resource, name: str, patch: Object, namespace: str = "", subresource: str = ""
    ) -> Object:
        """Apply a merge patch: null removes, objects merge, any other value replaces. Raises NotFound, Conflict."""
        path = resource.path(namespace, name, subresource)
        return await self.request("PATCH", path, self._owned(), patch, MERGE)

    async def patch_for_metadata(self, resource: Resource, name: str, patch: Object, namespace: str = "") -> Object:
        """As `patch`; return the metadata alone, which is all that the server sends."""
        path = resource.path(namespace, name)
        headers = (*self.target.headers, ("user-agent", self._manager), ("accept", METADATA), ("content-type", MERGE))
        answer = await self._send("PATCH", self._target(path, self._owned()), headers, encode_json(patch))
        metadata: Object = _object(answer.body)["metadata"]
        return metadata

    async def apply(
        self, resource: Resource, obj: Object, *, force: bool = True, subresource: str = "", manager: str = ""
    ) -> Object:
        """Server-side apply under this client's field manager, or another: creates, or changes what this manager owns.

        With `force` false a field that another manager owns raises Conflict.
        """
        query = {"fieldManager": manager or self._manager, "force": "true" if force else "false"}
        return await self.request("PATCH", _path_of(resource, obj, subresource), query, obj, APPLY)

    async def delete(self, resource: Resource, name: str, namespace: str = "", **options: str) -> Object:
        """Delete an object; return the Status, or the object while finalizers hold it. Raises NotFound."""
        return await self.request("DELETE", resource.path(namespace, name), options)

    # --- watching

    @asynccontextmanager
    async def watch(
        self, resource: Resource, namespace: str = "", **options: str
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """Events of a watch in order, for as long as the context is open; bookmarks included.

        The iteration ends when the server ends it. It raises the server's error (an ERROR event too: Expired where
        the revision is gone), ConnectionLost when the connection breaks, TimeoutError when it is silent for long.
        """
        query = {"watch": "true", "allowWatchBookmarks": "true", **options}
        path, decode = resource.path(namespace), self._decode_event
        async with self.stream(path, query) as stream, aclosing(_events(stream, decode)) as events:
            yield events

    @asynccontextmanager
    async def stream(self, path: str, query: Query, *, idle_timeout_s: float = 0) -> AsyncIterator[ClientStream]:
        """The good answer of a GET below the cluster, read as it arrives. Raises as `watch` does."""
        idle_s = idle_timeout_s or self.watch_idle_s
        target = self._target(path, query)
        headers = (*self.target.headers, ("user-agent", self._manager), ("accept", self._accept[1]))
        async with await self._http.watch(target, headers, idle_timeout_s=idle_s) as stream:
            if stream.status >= 300:
                raise _error(stream.status, await stream.read())
            yield stream

    def _target(self, path: str, query: Query | None) -> str:
        return self._prefix + path + (f"?{urlencode(query)}" if query else "")

    def _headers(self, more: Headers = ()) -> Headers:
        return (*self.target.headers, ("user-agent", self._manager), ("accept", self._accept[0]), *more)

    def _owned(self) -> dict[str, str]:
        return {"fieldManager": self._manager}


def _path_of(resource: Resource, obj: Object, subresource: str) -> str:
    metadata = obj["metadata"]
    return resource.path(metadata.get("namespace", ""), metadata["name"], subresource)


def _object(answer: bytes) -> Object:
    try:
        found = _decode(answer)
    except msgspec.DecodeError as error:
        raise BadResponse(f"the answer is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadResponse("the answer is no JSON object")
    return found


def _complete(found: Object) -> None:
    """Set apiVersion and kind of the items of a list, which servers leave out for built-in kinds."""
    lead = {"apiVersion": found.get("apiVersion", ""), "kind": str(found.get("kind", "")).removesuffix("List")}
    found["items"] = [each if "kind" in each else {**lead, **each} for each in found["items"]]


@cache
def _decoder_of(shape: type) -> _DecodeEvent:
    reduced = msgspec.defstruct("Reduced", [("type", str), ("object", shape)], bases=(WatchEvent,), frozen=True)
    return cast(_DecodeEvent, msgspec.json.Decoder(reduced).decode)


async def _events(stream: ClientStream, decode: _DecodeEvent) -> AsyncGenerator[WatchEvent, None]:
    async with aclosing(cast(AsyncGenerator[bytes, None], stream.lines())) as lines:
        async for line in lines:
            try:
                event = decode(line)
            except msgspec.DecodeError as error:
                raise BadResponse(f"a line of a watch is no event: {error}") from error
            if event.type == "ERROR":
                raise from_status(_decode_event(line).object)
            yield event


def _come_back_s(response: ClientResponse) -> float | None:
    """Return the seconds of Retry-After; None if the reply is final."""
    after = response.header("retry-after")
    if response.status not in {429, 503} or not after.isdigit():
        return None
    return min(float(after), MAX_RETRY_AFTER_S)


def _error(status: int, body: bytes) -> ApiError:
    """Return the error of a reply; without a Status it has the code and the start of the text."""
    try:
        found = _decode(body)
    except msgspec.DecodeError:
        found = None
    if isinstance(found, dict) and found.get("kind") == "Status":
        return from_status(found)
    return ApiError(body[:200].decode(errors="replace").strip() or f"HTTP {status}", code=status, reason="")
