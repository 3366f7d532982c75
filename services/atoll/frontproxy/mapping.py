"""The path mappings: kcp's mapping file, or the defaults without one.

`process` reads it once; `handler` matches each request. Paths are matched by decoded segments, so that spelling makes
no difference; the mapping with the most segments wins, then the one with fewer placeholders. Invariant: an unusable
file is refused at start, with the line of the error.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import yaml

from atoll.machinery.process.private_files import Pair
from atoll.machinery.process.tls import ClientContext, client_context

SHARDS = "/clusters/"
SERVICES = "/services/"
#: The placeholder that names the workspace of a request.
CLUSTER = "cluster"
MAX_FILE_BYTES = 1 << 20
#: Paths that need no backend in a file.
_OF_SHARDS = (SHARDS, SERVICES)


class MappingError(Exception):
    """The error of a mapping file, with its line."""


class RemoteHeaderNames(msgspec.Struct, frozen=True):
    """The names of headers that carry the user to a backend."""

    user: str = "X-Remote-User"
    group: str = "X-Remote-Group"
    extra_prefix: str = "X-Remote-Extra-"


class Mapping(msgspec.Struct, frozen=True):
    """One entry. `backend` is a URL without a slash at its end. It is empty for the shards: for `/clusters/`, for
    `/services/` where views are served by the shard of their cluster, and for the root shard."""

    path: str
    backend: str = ""
    tls: ClientContext | None = None
    names: RemoteHeaderNames = RemoteHeaderNames()
    #: The backend's authorities in `tls`, and the client certificate for it, if one was configured.
    server_ca: bytes = b""
    client_pair: Pair | None = None
    #: The files of these: authorities, certificate and key.
    files: tuple[str, str, str] = ("", "", "")

    @property
    def is_shards(self) -> bool:
        return self.path == SHARDS

    @property
    def segments(self) -> tuple[str, ...]:
        return tuple(part for part in self.path.split("/") if part)

    @property
    def is_prefix(self) -> bool:
        return self.path.endswith("/")


class MappingTable:
    """The mappings, most specific first."""

    def __init__(self, mappings: Sequence[Mapping]) -> None:
        self.mappings = tuple(sorted(mappings, key=_specificity, reverse=True))
        self._shapes = [(mapping, mapping.segments, mapping.is_prefix) for mapping in self.mappings]
        #: The mapping of `/clusters/`, if no other takes a path that begins so: then such a path need not be matched.
        self.only_shards = _only_shards(self.mappings)

    def match(self, segments: Sequence[str]) -> tuple[Mapping | None, str]:
        """The mapping for a path, and the value of its `{cluster}`, empty if it has none."""
        for mapping, shape, is_prefix in self._shapes:
            if len(segments) < len(shape) or (not is_prefix and len(segments) > len(shape)):
                continue
            cluster = _cluster(shape, segments)
            if cluster is not None:
                return mapping, cluster
        return None, ""


def _only_shards(mappings: Sequence[Mapping]) -> Mapping | None:
    shards = [mapping for mapping in mappings if mapping.is_shards]
    others = [mapping.segments[0] for mapping in mappings if mapping.segments and not mapping.is_shards]
    return shards[0] if shards and not any(each == "clusters" or _placeholder(each) for each in others) else None


def _specificity(mapping: Mapping) -> tuple[int, int, bool]:
    segments = mapping.segments
    return len(segments), sum(not _placeholder(part) for part in segments), not mapping.is_prefix


def _placeholder(segment: str) -> str:
    return segment[1:-1] if segment.startswith("{") and segment.endswith("}") else ""


def _cluster(shape: Sequence[str], segments: Sequence[str]) -> str | None:
    """The value of `{cluster}`, empty without one; None if the path does not match."""
    cluster = ""
    for impersonation_request, found in zip(shape, segments, strict=False):
        name = _placeholder(impersonation_request)
        if not name and impersonation_request != found:
            return None
        if name == CLUSTER:
            cluster = found
    return cluster


#: Without a file: `/clusters/` to the shards, everything else to the root shard.
DEFAULT = MappingTable((Mapping(SHARDS), Mapping("/")))


def read(file: Path) -> MappingTable:
    """The table of a mapping file. Raises MappingError."""
    try:
        text = file.read_bytes()
    except OSError as error:
        raise MappingError(f"{file}: {error.strerror}") from error
    if len(text) > MAX_FILE_BYTES:
        raise MappingError(f"{file}: larger than {MAX_FILE_BYTES} bytes")
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise MappingError(f"{file}: {where}{getattr(error, 'problem', None) or 'no YAML'}") from error
    try:
        return MappingTable(_mappings(node))
    except _EntryError as error:
        raise MappingError(f"{file}: line {error.line}: {error}") from error


class _EntryError(Exception):
    def __init__(self, node: yaml.Node | None, text: str) -> None:
        super().__init__(text)
        self.line = node.start_mark.line + 1 if node is not None else 1


_FIELDS = (
    "path",
    "backend",
    "backend_server_ca",
    "proxy_client_cert",
    "proxy_client_key",
    "user_header",
    "group_header",
    "extra_header_prefix",
)


def _mappings(node: yaml.Node | None) -> list[Mapping]:
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        raise _EntryError(node, "a mapping file is a list of mappings")
    found: dict[str, Mapping] = {}
    for entry in node.value:
        mapping = _mapping(entry)
        if mapping.path in found:
            raise _EntryError(entry, f"path {mapping.path} is mapped twice")
        found[mapping.path] = mapping
    return list(found.values())


def _mapping(entry: yaml.Node) -> Mapping:
    if not isinstance(entry, yaml.MappingNode):
        raise _EntryError(entry, "a mapping has the fields " + ", ".join(_FIELDS))
    fields: dict[str, tuple[str, yaml.Node]] = {}
    for key, value in entry.value:
        if not isinstance(key, yaml.ScalarNode) or key.value not in _FIELDS:
            raise _EntryError(key, f"unknown field {getattr(key, 'value', '')!r}")
        if key.value in fields:
            raise _EntryError(key, f"field {key.value} is there twice")
        if not isinstance(value, yaml.ScalarNode):
            raise _EntryError(value, f"{key.value} is not a text")
        fields[key.value] = value.value, value
    path = _path(entry, fields)
    backend = _backend(entry, fields, needed=path not in _OF_SHARDS)
    defaults = RemoteHeaderNames()
    names = RemoteHeaderNames(
        _header(fields, "user_header", defaults.user),
        _header(fields, "group_header", defaults.group),
        _header(fields, "extra_header_prefix", defaults.extra_prefix),
    )
    return Mapping(path, backend, *_trust(entry, fields, names, needed=path not in _OF_SHARDS))


_Fields = dict[str, tuple[str, yaml.Node]]
#: The fields that name files.
_TRUST = ("backend_server_ca", "proxy_client_cert", "proxy_client_key")


def _path(entry: yaml.Node, fields: _Fields) -> str:
    if "path" not in fields:
        raise _EntryError(entry, "path is missing")
    path, node = fields["path"]
    segments = path.split("/")[1:]
    inner = segments[:-1] if segments and not segments[-1] else segments
    if not path.startswith("/") or not all(inner) or any(part in {".", ".."} for part in inner):
        raise _EntryError(node, f"path {path!r} is not a path of whole segments that begins with /")
    held = [part for part in inner if "{" in part or "}" in part]
    names = [_placeholder(part) for part in held]
    if not all(name.isidentifier() for name in names) or len(set(names)) != len(names):
        raise _EntryError(node, f"path {path!r} has a placeholder that is not one segment with a name of its own")
    return path


def _backend(entry: yaml.Node, fields: _Fields, *, needed: bool) -> str:
    url, node = fields.get("backend", ("", entry))
    if not url and not needed:
        return ""
    try:
        parts = urlsplit(url)
        sound = parts.scheme == "https" and bool(parts.hostname) and not parts.query and not parts.fragment
        sound = sound and parts.username is None and parts.port != 0
    except ValueError:
        sound = False
    if not sound:
        raise _EntryError(node, f"backend {url!r} is not an https URL of a host")
    return url.rstrip("/")


def _header(fields: _Fields, name: str, default: str) -> str:
    text, node = fields.get(name, (default, None))
    if node is not None and not (text and text.isascii() and text.replace("-", "").isalnum()):
        raise _EntryError(node, f"{name} {text!r} is no name of a header")
    return text


def _trust(
    entry: yaml.Node, fields: _Fields, names: RemoteHeaderNames, *, needed: bool
) -> tuple[ClientContext | None, RemoteHeaderNames, bytes, Pair | None, tuple[str, str, str]]:
    """The TLS context for a backend, its header names, and the files that the context was made of."""
    if "backend_server_ca" not in fields:
        if needed:
            raise _EntryError(entry, "backend_server_ca is missing")
        return None, names, b"", None, ("", "", "")
    ca = _file(fields, "backend_server_ca")
    given = [name for name in _TRUST[1:] if name in fields]
    if len(given) == 1:
        raise _EntryError(fields[given[0]][1], "proxy_client_cert and proxy_client_key go together")
    pair = Pair(_file(fields, "proxy_client_cert"), _file(fields, "proxy_client_key")) if given else None
    try:
        paths = [fields[name][0] if name in fields else "" for name in _TRUST]
        return client_context(ca, pair), names, ca, pair, (paths[0], paths[1], paths[2])
    except (ssl.SSLError, ValueError) as error:
        raise _EntryError(
            fields["backend_server_ca"][1], f"its certificates and key cannot be used: {error}"
        ) from error


def _file(fields: _Fields, name: str) -> bytes:
    path, node = fields[name]
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise _EntryError(node, f"{name} {path}: {error.strerror}") from error
