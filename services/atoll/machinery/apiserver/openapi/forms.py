"""The four forms a document is published in: v3 and v2, each as JSON and as gnostic protobuf.

`parts` encodes schemas and path items with a form, `publisher` joins them to documents with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from atoll.machinery.apiserver.openapi import gnostic_v2, gnostic_v3, v2, v3
from atoll.machinery.apiserver.openapi.routes import OperationRoute
from atoll.machinery.meta.objects import Object, encode_json

#: Encoded pieces by name (of a schema) or path.
Pieces = Mapping[str, bytes]


class Form(msgspec.Struct, frozen=True):
    """How a document is written. `items` makes path items of routes; the rest encodes and joins."""

    name: str
    content_type: str
    is_v3: bool
    items: Callable[[list[OperationRoute]], dict[str, Object]]
    schema: Callable[[str, Object], bytes]
    item: Callable[[str, Object], bytes]
    join: Callable[[Pieces, Pieces], bytes]


def _json(name: str, value: Object) -> bytes:
    return encode_json(value)


def _members(pieces: Pieces) -> bytes:
    return b",".join(b"%b:%b" % (encode_json(name), pieces[name]) for name in sorted(pieces))


def _sorted(pieces: Pieces) -> list[bytes]:
    return [pieces[name] for name in sorted(pieces)]


def _v3_json(paths: Pieces, schemas: Pieces) -> bytes:
    security = encode_json(v3.SECURITY)
    held = b'"schemas":{%b},' % _members(schemas) if schemas else b""
    components = b'{%b"securitySchemes":%b}' % (held, security)
    head = encode_json(v3.INFO), encode_json(v3.VERSION)
    return b'{"components":%b,"info":%b,"openapi":%b,"paths":{%b}}\n' % (components, *head, _members(paths))


def _v2_json(paths: Pieces, definitions: Pieces) -> bytes:
    tail = encode_json(
        {
            "parameters": v2.shared_parameters(),
            "security": v2.SECURITY,
            "securityDefinitions": v3.SECURITY,
            "swagger": v2.VERSION,
        }
    )
    head = _members(definitions), encode_json(v2.INFO), _members(paths)
    return b'{"definitions":{%b},"info":%b,"paths":{%b},%b\n' % (*head, tail[1:])


def _v3_protobuf(paths: Pieces, schemas: Pieces) -> bytes:
    return gnostic_v3.document(_sorted(paths), _sorted(schemas), v3.SECURITY)


def _v2_protobuf(paths: Pieces, definitions: Pieces) -> bytes:
    return gnostic_v2.document(_sorted(paths), _sorted(definitions), v3.SECURITY)


JSON = "application/json"
V3_PROTOBUF = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

V3 = Form("v3", JSON, True, v3.path_items, _json, _json, _v3_json)
V3_BINARY = Form(
    "v3 protobuf", V3_PROTOBUF, True, v3.path_items, gnostic_v3.component, gnostic_v3.path_item, _v3_protobuf
)
V2 = Form("v2", JSON, False, v2.path_items, _json, _json, _v2_json)
V2_BINARY = Form(
    "v2 protobuf", V2_PROTOBUF, False, v2.path_items, gnostic_v2.definition, gnostic_v2.path_item, _v2_protobuf
)


def accepted(media_type: str, *, v3: bool) -> Form | None:
    """The form that a clause of an Accept header asks for; None if it asks for something else.

    The spelling with `@` is what old clients send; the answer has the new one.
    """
    json, binary, known = (V3, V3_BINARY, V3_PROTOBUF) if v3 else (V2, V2_BINARY, V2_PROTOBUF)
    if media_type in {JSON, "*/*", "application/*", "*/json"}:
        return json
    return binary if media_type.replace("@v1.0", ".v1.0") == known else None
