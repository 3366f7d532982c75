"""Tables of gnostic's messages of OpenAPI v3 (`OpenAPIv3.proto`), for the keys that Kubernetes' documents have.

`publisher` encodes components and path items one by one; `document` joins them.
"""

from __future__ import annotations

from typing import Any

from atoll.machinery.apiserver.openapi import v3
from atoll.machinery.apiserver.openapi.gnostic import (
    Field,
    Table,
    anything,
    block,
    double,
    each,
    encode,
    entries,
    extension,
    flag,
    integer,
    joined,
    message,
    named,
    text,
    texts,
    wrapped,
)
from atoll.machinery.meta.objects import Object

_EXTERNAL_DOCS: Table = {"description": text(1), "url": text(2), "x-": extension(3)}
_REFERENCE: Table = {"$ref": text(1), "summary": text(2), "description": text(3)}
_SCHEMA: dict[str, Field] = {}
_itself, _reference = message(1, _SCHEMA), message(2, _REFERENCE)
_number, _truth, _text = double(1), flag(2), text(3)


def _either(value: Object) -> bytes:
    """Return the content of a SchemaOrReference."""
    return _reference(value) if "$ref" in value else _itself(value)


def _default(value: Any) -> bytes:
    """DefaultType, field 33 of a schema: a number, a boolean or a string; empty for a value of another type."""
    if isinstance(value, bool):
        return block(33)(_truth(value) or b"\x10\x00")
    if isinstance(value, int | float):
        return block(33)(_number(value) or b"\x09" + bytes(8))
    return block(33)((_text(value) or b"\x1a\x00") if isinstance(value, str) else b"")


def _additional(value: Any) -> bytes:
    """AdditionalPropertiesItem, field 32 of a schema: a schema or a boolean."""
    write = block(32)
    return write(_truth(value) or b"\x10\x00") if isinstance(value, bool) else write(block(1)(_either(value)))


_SCHEMA.update({
    "nullable": flag(1), "readOnly": flag(3), "externalDocs": message(6, _EXTERNAL_DOCS), "example": anything(7),
    "title": text(9), "multipleOf": double(10), "maximum": double(11), "exclusiveMaximum": flag(12),
    "minimum": double(13), "exclusiveMinimum": flag(14), "maxLength": integer(15), "minLength": integer(16),
    "pattern": text(17), "maxItems": integer(18), "minItems": integer(19), "uniqueItems": flag(20),
    "maxProperties": integer(21), "minProperties": integer(22), "required": texts(23), "enum": each(anything(24)),
    "type": text(25), "allOf": each(wrapped(26, _either)), "oneOf": each(wrapped(27, _either)),
    "anyOf": each(wrapped(28, _either)), "not": message(29, _SCHEMA), "items": wrapped(30, wrapped(1, _either)),
    "properties": wrapped(31, entries(1, wrapped(2, _either))), "additionalProperties": _additional,
    "default": _default, "description": text(34), "format": text(35), "x-": extension(36),
})  # fmt: skip

_PARAMETER: Table = {
    "name": text(1), "in": text(2), "description": text(3), "required": flag(4), "schema": wrapped(10, _either),
}  # fmt: skip
_MEDIA_TYPES: Field = entries(1, message(2, {"schema": wrapped(1, _either)}))
_RESPONSE: Table = {"description": text(1), "content": wrapped(3, _MEDIA_TYPES)}
_BODY: Table = {"description": text(1), "content": wrapped(2, _MEDIA_TYPES), "required": flag(3)}
_OPERATION: Table = {
    "tags": texts(1), "description": text(3), "operationId": text(5),
    "parameters": each(wrapped(6, message(1, _PARAMETER))), "requestBody": wrapped(7, message(1, _BODY)),
    "responses": wrapped(8, entries(2, wrapped(2, message(1, _RESPONSE)))), "x-": extension(13),
}  # fmt: skip
_PATH_ITEM: Table = {
    "get": message(4, _OPERATION), "put": message(5, _OPERATION), "post": message(6, _OPERATION),
    "delete": message(7, _OPERATION), "patch": message(10, _OPERATION),
    "parameters": each(wrapped(13, message(1, _PARAMETER))),
}  # fmt: skip
_SECURITY_SCHEME: Table = {"type": text(1), "description": text(2), "name": text(3), "in": text(4)}
_DOCUMENT: Table = {"openapi": text(1), "info": message(2, {"title": text(1), "version": text(6)})}
_security = wrapped(7, entries(1, wrapped(2, message(1, _SECURITY_SCHEME))))

#: Encodes one schema of the components: name, schema.
component = named(1, wrapped(2, _either))
#: Encodes one path item: path, path item.
path_item = named(1, message(2, _PATH_ITEM))


def document(paths: list[bytes], schemas: list[bytes], security: Object) -> bytes:
    """Return the document of encoded path items and schemas."""
    head = encode(_DOCUMENT, {"openapi": v3.VERSION, "info": v3.INFO})
    components = (block(1)(joined(schemas)) if schemas else b"") + _security(security)
    return joined([head, block(4)(joined(paths)), block(5)(components)])
