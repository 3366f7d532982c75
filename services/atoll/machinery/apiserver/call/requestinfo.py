"""Parse a raw request target into a typed request (Kubernetes' RequestInfo): the only parser of URLs.

The pipeline calls `parse` once; authorization, routing, storage and audit read the result, so that they agree.
Segments are split on `/` first and then percent-decoded one by one (`system:foo` arrives as `system%3Afoo`); an
encoded slash, NUL or dot segment is rejected.
"""

from __future__ import annotations

import re
from functools import lru_cache
from types import MappingProxyType
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec
from msgspec.structs import replace

from atoll.machinery.meta.names import is_workspace_path
from atoll.machinery.meta.status import BadRequest

MAX_QUERY_FIELDS = 1000
#: Longer targets are parsed at each request: anybody chooses them, and a field takes some 150 bytes.
_MAX_CACHED_TARGET = 256
WILDCARD = "*"
#: Last segments without an escape or a dot segment.
_PLAIN_NAME = re.compile(rb"[a-z0-9][a-z0-9.-]*")
#: In paths whose segments are decoded one by one: an escape, NUL, a segment that begins with a dot.
_UNUSUAL = re.compile(rb"%|\0|/\.")
#: Stands for the name of any object.
_SAMPLE = "0-sample"
_MAX_CACHED = 2048
_NO_QUERY: MappingProxyType[str, str] = MappingProxyType({})

_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_NAMESPACE_SUBRESOURCES = ("status", "finalize")
_FALSE = ("false", "0")


class RequestInfo(msgspec.Struct, frozen=True):
    """A parsed request.

    `workspace` is the text after `/clusters/` (a path, a name, `*`) or empty; `path` is the decoded rest, with a
    leading slash. Resource requests set the fields below it; `identity` is the hash after `resource:`, None without
    a colon.
    """

    method: str
    workspace: str
    path: str
    verb: str
    query: MappingProxyType[str, str]
    is_resource: bool = False
    group: str = ""
    version: str = ""
    resource: str = ""
    identity: str | None = None
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    service: str = ""

    @property
    def is_wildcard(self) -> bool:
        return self.workspace == WILDCARD


#: By method and target.
_recent: dict[tuple[str, bytes], RequestInfo] = {}


def parse(method: str, target: bytes) -> RequestInfo:
    """Parse a request target. Raises BadRequest for a malformed one."""
    found = _recent.get((method, target))
    if found is None:
        if len(target) > _MAX_CACHED_TARGET:
            return _parse(method, target)
        found = _parse_last(method, target)
        if len(_recent) >= _MAX_CACHED:
            _recent.clear()
        _recent[method, target] = found
    return found


def _parse_last(method: str, target: bytes) -> RequestInfo:
    """Parse a target of a collection that may be known: requests for many objects differ in their last segment."""
    collection, _, last = target.rpartition(b"/")
    if _PLAIN_NAME.fullmatch(last) and b"/api" in collection and b"?" not in collection:
        known = _parse_collection(method, collection)
        if known.name == _SAMPLE and not known.subresource and known.namespace != _SAMPLE:
            name = last.decode()
            return replace(known, name=name, path=known.path[: -len(_SAMPLE)] + name)
    return _parse(method, target)


@lru_cache(maxsize=512)
def _parse_collection(method: str, collection: bytes) -> RequestInfo:
    return _parse(method, collection + b"/" + _SAMPLE.encode())


def _parse(method: str, target: bytes) -> RequestInfo:
    raw_path, _, raw_query = target.partition(b"?")
    segments = _segments(raw_path)
    query = _parse_query(raw_query)
    workspace, segments = _take_workspace(segments)
    path = "/" + "/".join(segments)
    if segments and segments[0] == "services":
        return RequestInfo(method, workspace, path, method.lower(), query, service="/".join(segments[1:2]))
    return _resource_info(method, workspace, path, segments, query)


def inside(target: bytes, depth: int) -> bytes:
    """Return the target within a virtual workspace: the target without its first `depth` segments."""
    raw_path, question, raw_query = target.partition(b"?")
    segments = [raw for raw in raw_path.split(b"/") if raw]
    return b"/" + b"/".join(segments[depth:]) + question + raw_query


def _segments(raw_path: bytes) -> list[str]:
    if raw_path.isascii() and raw_path.startswith(b"/") and not _UNUSUAL.search(raw_path):
        return [each for each in raw_path.decode().split("/") if each]
    return [_decode(raw) for raw in raw_path.split(b"/") if raw]


def _decode(raw: bytes) -> str:
    try:
        text = unquote_to_bytes(raw).decode()
    except UnicodeDecodeError as error:
        raise BadRequest("the request path is not valid UTF-8") from error
    if "/" in text or "\x00" in text or text in {".", ".."}:
        raise BadRequest(f"invalid path segment {text!r}")
    return text


def _parse_query(raw: bytes) -> MappingProxyType[str, str]:
    """Parse query parameters; the first value of a name wins, as in Kubernetes."""
    if not raw:
        return _NO_QUERY
    try:
        pairs = parse_qsl(raw.decode(), keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS, errors="strict")
    except ValueError as error:
        raise BadRequest("the query string cannot be parsed") from error
    query: dict[str, str] = {}
    for name, value in pairs:
        query.setdefault(name, value)
    return MappingProxyType(query)


def _take_workspace(segments: list[str]) -> tuple[str, list[str]]:
    if not segments or segments[0] != "clusters" or len(segments) < 2:
        return "", segments
    workspace = segments[1]
    if workspace != WILDCARD and not is_workspace_path(workspace):
        raise BadRequest(f'invalid cluster: "{workspace}" does not match the regex')
    return workspace, segments[2:]


def _resource_info(
    method: str, workspace: str, path: str, segments: list[str], query: MappingProxyType[str, str]
) -> RequestInfo:
    plain = RequestInfo(method, workspace, path, method.lower(), query)
    if not segments or segments[0] not in {"api", "apis"}:
        return plain
    named = 1 if segments[0] == "api" else 2
    if len(segments) < named + 2:
        return plain
    group = "" if named == 1 else segments[1]
    version, rest = segments[named], segments[named + 1 :]
    verb = _VERBS.get(method, method.lower())
    if rest[0] == "watch" and len(rest) > 1:
        verb, rest = "watch", rest[1:]
    namespace, rest = _take_namespace(rest)
    resource, colon, identity = rest[0].partition(":")
    name = rest[1] if len(rest) > 1 else ""
    # With the deprecated /watch/ prefix a name selects one object of a collection.
    return RequestInfo(
        method,
        workspace,
        path,
        _collection_verb(verb, name, query),
        query,
        is_resource=True,
        group=group,
        version=version,
        resource=resource,
        identity=identity if colon else None,
        namespace=namespace,
        name=name,
        subresource="/".join(rest[2:]),
    )


def _take_namespace(rest: list[str]) -> tuple[str, list[str]]:
    """Split the namespace off `namespaces/<n>/<resource>`; `namespaces/<n>` is the Namespace, in itself."""
    if rest[0] != "namespaces" or len(rest) < 2:
        return "", rest
    if len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES:
        return rest[1], rest[2:]
    return rest[1], rest


def _collection_verb(verb: str, name: str, query: MappingProxyType[str, str]) -> str:
    if name:
        return verb
    if verb == "get":
        watch = query.get("watch")
        return "watch" if watch is not None and watch.lower() not in _FALSE else "list"
    return "deletecollection" if verb == "delete" else verb
