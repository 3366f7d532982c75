"""Requests that are large, or small and costly: none of them may block a shard's event loop.

`tests/integration/security/test_event_loop` sends each of them while it asks for /livez, and so does the load test
`eventloop`. To add one, append it to `REQUESTS`; paths are those of one workspace that defines `BLOBS` and has the
objects of `PREPARED`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from harness.clients.api import (
    APPLY,
    CRDS,
    JSON,
    JSON_PATCH,
    MERGE,
    PARTIAL_LIST,
    TABLE,
    YAML,
    Api,
    configmap,
    crd,
    define,
)

MIB = 1 << 20
PROTOBUF = "application/vnd.kubernetes.protobuf"
BLOBS = "/apis/bulk.example.com/v1/namespaces/default/blobs"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class LargeRequest(NamedTuple):
    """One request of the corpus; `code` is that of its answer, `body` makes what is sent."""

    name: str
    method: str
    path: str
    code: int
    body: Callable[[], bytes] | None = None
    kind: str = JSON
    accept: str = ""

    def send(self, api: Api) -> None:
        """Send the request; fails unless the answer has the code."""
        body, kind = (None, "") if self.body is None else (self.body(), self.kind)
        api.send(self.method, self.path, body, kind=kind, accept=self.accept, expect=self.code)


def _blob(name: str, value: bytes) -> bytes:
    """A Blob with JSON in a field without a schema."""
    head = {"apiVersion": "bulk.example.com/v1", "kind": "Blob", "metadata": {"name": name}}
    return json.dumps(head).encode()[:-1] + b',"data":' + value + b"}"


def _list(item: bytes, size_bytes: int) -> bytes:
    """A JSON list of about so many bytes."""
    return b"[" + b",".join([item] * (size_bytes // (len(item) + 1))) + b"]"


def _mapping(size_bytes: int, start: str = "k") -> bytes:
    return json.dumps({f"{start}{at:08d}": "v" for at in range(size_bytes // 16)}, separators=(",", ":")).encode()


def _yaml(item: bytes, size_bytes: int) -> bytes:
    """A Blob in YAML that is not JSON."""
    return b"# a comment\n" + _blob("y", _list(item, size_bytes))


def _aliases(levels: int) -> bytes:
    """Nine references to nine references to... : a few hundred bytes for 9 ** levels values."""
    names = [f"a{level}" for level in range(levels)]
    lines = [f"{names[0]}: &{names[0]} [x,x,x,x,x,x,x,x,x]"]
    lines += [f"{name}: &{name} [{','.join([f'*{last}'] * 9)}]" for last, name in itertools.pairwise(names)]
    return "\n".join(lines).encode()


_BIG = 3 * MIB - 1024
#: So many kinds are served: a few definitions of many versions, because each definition takes a while.
DEFINITIONS, VERSIONS = 40, 15
_STRICT = "fieldValidation=Strict&dryRun=All"

_DRY = f"{BLOBS}?dryRun=All"
_PATCHED = f"{BLOBS}/arr?dryRun=All"


def _repeated() -> bytes:
    """An object with one key over and over."""
    return b"{" + b'"k":1,' * (_BIG // 6) + b'"k":1}'


def _halves() -> bytes:
    """A text of escaped halves of surrogate pairs."""
    return b'"' + b"\\ud800" * (_BIG // 6) + b'"'


def _update() -> bytes:
    """A ConfigMap of many keys."""
    return b'{"data":' + _mapping(MIB - 4096) + b"}"


def _addition() -> bytes:
    """A JSON patch that adds one large value."""
    return b'[{"op":"add","path":"/data","value":' + _list(b"{}", _BIG) + b"}]"


def _operations(**operation: object) -> bytes:
    """A JSON patch of as many equal operations as are allowed."""
    return json.dumps([operation] * 10_000).encode()


def _rows(count: int) -> bytes:
    """A Blob with a list-map of so many items."""
    items = [{"name": f"n{at}", "v": at} for at in range(count)]
    return _blob("rows", b"1")[:-1] + b',"rows":' + json.dumps(items, separators=(",", ":")).encode() + b"}"


def _definition(plural: str, **schema: object) -> bytes:
    """A definition with one property `x`."""
    definition = crd(plural, "bulk.example.com")
    version: Any = definition["spec"]["versions"][0]
    version["schema"]["openAPIV3Schema"]["properties"]["x"] = schema
    return json.dumps(definition, separators=(",", ":")).encode()


def _managed(count: int, operation: str) -> bytes:
    """A ConfigMap with so many entries of managedFields."""
    entry = {"operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "time": "2024-01-01T00:00:00Z"}
    found = configmap("managed", {f"k{at}": "v" for at in range(20)})
    fields: Any = {"f:data": {f"f:k{at}": {} for at in range(20)}}
    found["metadata"]["managedFields"] = [{**entry, "manager": f"m{at}", "fieldsV1": fields} for at in range(count)]
    return json.dumps(found).encode()


def _kinds(at: int) -> Any:
    """A definition of many versions, each with some fields."""
    text = "What this field is for, which takes a line or so of text to say."
    field = {"type": "object", "description": text, "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}
    definition = crd(f"kinds{at}", f"group{at % 10}.example.com")
    (version,) = definition["spec"]["versions"]
    version["schema"]["openAPIV3Schema"]["properties"]["x"] = {
        "type": "object",
        "properties": {f"field{number}": field for number in range(30)},
    }
    more = ({**version, "name": f"v{number}", "storage": False} for number in range(2, VERSIONS + 1))
    definition["spec"]["versions"] = [version, *more]
    return definition


def _varint(number: int) -> bytes:
    data = b""
    while number > 127:
        data, number = data + bytes([number & 127 | 128]), number >> 7
    return data + bytes([number])


def _field(number: int, data: bytes) -> bytes:
    """A field of protobuf that has bytes."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _protobuf(size_bytes: int) -> bytes:
    """A ConfigMap of many keys, as typed Go clients send it."""
    entries = [_field(1, b"k%08d" % at) + _field(2, b"v") for at in range(size_bytes // 20)]
    configmap = _field(1, _field(1, b"packed")) + b"".join(_field(2, entry) for entry in entries)
    return b"k8s\0" + _field(1, _field(1, b"v1") + _field(2, b"ConfigMap")) + _field(2, configmap)


def _defaulted(count: int) -> bytes:
    item = {"type": "object", "properties": {"a": {"type": "integer"}}}
    return _definition("defaults", type="array", items=item, default=[{"a": 1}] * count)


def _enum(count: int) -> bytes:
    return _definition("enums", type="string", enum=[str(at) for at in range(count)])


_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_SPEC = "application/com.github.proto-openapi.spec.v{0}@v1.0+protobuf"
_MANAGED = f"{CONFIGMAPS}/appliers?dryRun=All"
_CONFLICT = f"{CONFIGMAPS}/appliers?dryRun=All&fieldManager=another"
_CHANGE = json.dumps(configmap("appliers", {"k1": "another"})).encode()
_ONE = b'[{"op":"add","path":"/data/0","value":1}]'
_DEFINITIONS = f"{CRDS}?dryRun=All"
_SMALL = b'{"metadata":{"labels":{"a":"b"}}}'
_TERMS = ",".join(f"spec.colour!={at}" for at in range(900))
_FORCED = f"{BLOBS}/rows?fieldManager=second&force=true&dryRun=All"

#: Created before the requests are sent.
PREPARED: tuple[tuple[str, Callable[[], bytes]], ...] = (
    (BLOBS, lambda: _blob("arr", _list(b"1", MIB))),
    (BLOBS, lambda: _blob("keys", _mapping(MIB))),
    (CONFIGMAPS, lambda: json.dumps(configmap("text", {f"key-{at}": f"value {at}" for at in range(30_000)})).encode()),
    (BLOBS, lambda: _blob("maps", _list(b"{}", _BIG))),
    (f"{BLOBS}?fieldManager=first", lambda: _rows(40_000)),
    (CONFIGMAPS, lambda: _managed(1_000, "Apply").replace(b'"managed"', b'"appliers"')),
    (CONFIGMAPS, lambda: json.dumps(configmap("lines", {"lines": "a line\n" * 100_000})).encode()),
)

REQUESTS = (
    # YAML out
    LargeRequest("YAML of a list of numbers", "GET", f"{BLOBS}/arr", 200, accept=YAML),
    LargeRequest("YAML of a mapping", "GET", f"{BLOBS}/keys", 200, accept=YAML),
    LargeRequest("YAML of a ConfigMap", "GET", f"{CONFIGMAPS}/text", 200, accept=YAML),
    LargeRequest("YAML of long texts", "GET", f"{CONFIGMAPS}/lines", 200, accept=YAML),
    LargeRequest("YAML of a list of objects", "GET", BLOBS, 200, accept=YAML),
    LargeRequest("YAML of ConfigMaps", "GET", CONFIGMAPS, 200, accept=YAML),
    # YAML in
    LargeRequest("aliases of aliases, review", "POST", REVIEWS, 400, lambda: _aliases(12), YAML),
    LargeRequest("aliases of aliases, create", "POST", BLOBS, 400, lambda: _aliases(12), YAML),
    LargeRequest("aliases of aliases, apply", "PATCH", f"{BLOBS}/y?fieldManager=m", 400, lambda: _aliases(12), APPLY),
    LargeRequest("aliases within the bound", "POST", BLOBS, 400, lambda: _aliases(5), YAML),
    LargeRequest("YAML numbers", "POST", _DRY, 201, lambda: _yaml(b"1", MIB - 4096), YAML),
    LargeRequest("YAML mappings", "POST", _DRY, 201, lambda: _yaml(b"{}", MIB - 4096), YAML),
    LargeRequest("YAML texts", "POST", _DRY, 201, lambda: _yaml(b"x", MIB - 4096), YAML),
    LargeRequest("YAML of a review", "POST", REVIEWS, 413, lambda: b"# x\na: " + _list(b"1", MIB - 4096), YAML),
    LargeRequest("JSON of a review", "POST", REVIEWS, 413, lambda: b'{"a": ' + _list(b"{}", _BIG) + b"}"),
    # JSON in
    LargeRequest("JSON numbers", "POST", _DRY, 201, lambda: _blob("j", _list(b"1", _BIG))),
    LargeRequest("JSON mappings", "POST", _DRY, 201, lambda: _blob("j", _list(b"{}", _BIG))),
    LargeRequest("JSON lists", "POST", _DRY, 201, lambda: _blob("j", _list(b"[]", _BIG))),
    LargeRequest("JSON objects", "POST", _DRY, 201, lambda: _blob("j", _list(b'{"a":1}', _BIG))),
    LargeRequest("JSON keys", "POST", _DRY, 201, lambda: _blob("j", _mapping(_BIG))),
    LargeRequest("one key repeated", "POST", f"{BLOBS}?{_STRICT}", 400, lambda: _blob("j", _repeated())),
    LargeRequest("escaped halves of surrogates", "POST", _DRY, 201, lambda: _blob("j", _halves())),
    LargeRequest("malformed JSON", "POST", BLOBS, 400, lambda: _blob("j", _list(b"{}", _BIG))[:-1]),
    LargeRequest("an update", "PUT", f"{CONFIGMAPS}/text?dryRun=All", 200, _update),
    LargeRequest("a merge patch", "PATCH", _PATCHED, 200, lambda: _blob("arr", _list(b"{}", _BIG)), MERGE),
    LargeRequest("a JSON patch", "PATCH", _PATCHED, 200, _addition, JSON_PATCH),
    LargeRequest(
        "insertions", "PATCH", _PATCHED, 413,
        lambda: _operations(op="add", path="/data/0", value=1), JSON_PATCH,
    ),
    LargeRequest("removals", "PATCH", _PATCHED, 413, lambda: _operations(op="remove", path="/data/0"), JSON_PATCH),
    LargeRequest(
        "moves", "PATCH", _PATCHED, 413,
        lambda: _operations(**{"op": "move", "from": "/data/0", "path": "/data/-"}), JSON_PATCH,
    ),
    LargeRequest("a list-map", "POST", _DRY, 201, lambda: _rows(100_000).replace(b'"rows"}', b'"more"}')),
    LargeRequest("an apply to a list-map", "PATCH", _FORCED, 200, lambda: _rows(40_000), APPLY),
    LargeRequest("protobuf", "POST", f"{CONFIGMAPS}?dryRun=All", 201, lambda: _protobuf(MIB - 4096), PROTOBUF),
    LargeRequest("a small patch", "PATCH", f"{BLOBS}/maps?dryRun=All", 200, lambda: _SMALL, MERGE),
    LargeRequest("a small JSON patch", "PATCH", f"{BLOBS}/maps?dryRun=All", 200, lambda: _ONE, JSON_PATCH),
    LargeRequest("a small patch of a list-map", "PATCH", f"{BLOBS}/rows?dryRun=All", 200, lambda: _SMALL, MERGE),
    LargeRequest("whole floats", "POST", _DRY, 201, lambda: _blob("j", _list(b"1.0", _BIG))),
    LargeRequest("a delete", "DELETE", f"{BLOBS}/maps?dryRun=All", 200),
    LargeRequest("a deletecollection", "DELETE", f"{BLOBS}?dryRun=All", 200),
    # managedFields
    LargeRequest("many updaters", "POST", f"{CONFIGMAPS}?dryRun=All", 201, lambda: _managed(1_000, "Update")),
    LargeRequest("many appliers", "POST", f"{CONFIGMAPS}?dryRun=All", 201, lambda: _managed(1_000, "Apply")),
    LargeRequest("a small patch of many appliers", "PATCH", _MANAGED, 200, lambda: _SMALL, MERGE),
    LargeRequest("an apply against many appliers", "PATCH", _CONFLICT, 409, lambda: _CHANGE, APPLY),
    LargeRequest("a delete of many appliers", "DELETE", _MANAGED, 200),
    # discovery and OpenAPI; the first answer is made, the others are cached
    LargeRequest("aggregated discovery", "GET", "/apis", 200, accept=_DISCOVERY),
    LargeRequest("groups", "GET", "/apis", 200),
    LargeRequest("groups in YAML", "GET", "/apis", 200, accept=YAML),
    LargeRequest("resources in YAML", "GET", "/apis/group1.example.com/v1", 200, accept=YAML),
    LargeRequest("the index of OpenAPI v3", "GET", "/openapi/v3", 200),
    LargeRequest("OpenAPI v3", "GET", "/openapi/v3/apis/group1.example.com/v1", 200),
    LargeRequest(
        "OpenAPI v3 in protobuf", "GET", "/openapi/v3/apis/group1.example.com/v1", 200, accept=_SPEC.format(3)
    ),
    LargeRequest("OpenAPI v2", "GET", "/openapi/v2", 200),
    LargeRequest("OpenAPI v2 in protobuf", "GET", "/openapi/v2", 200, accept=_SPEC.format(2)),
    LargeRequest("definitions in YAML", "GET", CRDS, 200, accept=YAML),
    LargeRequest("definitions as a Table", "GET", CRDS, 200, accept=TABLE),
    # definitions
    LargeRequest("a large default", "POST", _DEFINITIONS, 201, lambda: _defaulted(50_000)),
    LargeRequest("many enum values", "POST", _DEFINITIONS, 201, lambda: _enum(200_000)),
    # reads
    LargeRequest("field selector", "GET", f"{BLOBS}?fieldSelector={_TERMS}", 200),
    LargeRequest("a Table", "GET", BLOBS, 200, accept=TABLE),
    LargeRequest("a Table of one", "GET", f"{BLOBS}/maps", 200, accept=TABLE),
    LargeRequest("metadata", "GET", BLOBS, 200, accept=PARTIAL_LIST),
    LargeRequest("an indented object", "GET", f"{BLOBS}/maps?pretty=true", 200),
    LargeRequest("an indented list", "GET", f"{BLOBS}?pretty=true", 200),
    LargeRequest("another version", "GET", f"{BLOBS.replace('v1', 'v2')}/maps", 200),
    LargeRequest("a list in another version", "GET", BLOBS.replace("v1", "v2"), 200),
    LargeRequest("options of a delete", "DELETE", f"{BLOBS}/arr", 413, lambda: b'{"a":' + _list(b"{}", _BIG) + b"}"),
)  # fmt: skip


def prepare(api: Api) -> None:
    """Define the kinds and create the objects that the requests read."""
    for at in range(DEFINITIONS):
        api.post(CRDS, _kinds(at))
    prepare_objects(api)


def prepare_objects(api: Api) -> None:
    """What requests for Blobs and ConfigMaps read, `LARGEST` among them: their kind and the objects."""
    definition = crd("blobs", "bulk.example.com")
    version: Any = definition["spec"]["versions"][0]
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    item = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string"}, "v": {"type": "integer"}},
    }
    listed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    properties["data"] = {"x-kubernetes-preserve-unknown-fields": True}
    properties["rows"] = {"type": "array", "items": item, **listed}
    version["selectableFields"] = [{"jsonPath": ".spec.colour"}]
    definition["spec"]["versions"].append({**version, "name": "v2", "storage": False})
    define(api, definition)
    for path, body in PREPARED:
        api.post(path, body())


_TAKE_LONGEST = ("YAML of a list of objects", "a list-map", "a Table")
_TAKE_LONG = ("a small patch", "a small JSON patch", "JSON mappings", "a list in another version", "JSON keys")
#: Those that take longest, for processes beside a shard without workers; and more for the long tier.
LARGEST, LARGE = (tuple(each for each in REQUESTS if each.name in names) for names in (_TAKE_LONGEST, _TAKE_LONG))
