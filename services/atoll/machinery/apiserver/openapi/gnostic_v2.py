"""Tables of gnostic's messages of OpenAPI v2 (`OpenAPIv2.proto`), for the keys that Kubernetes' documents have.

`publisher` encodes definitions, path items and parameters one by one; `document` joins them.
"""

from __future__ import annotations

from typing import Any

from atoll.machinery.apiserver.openapi import v2
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
    messages,
    named,
    text,
    texts,
    wrapped,
)
from atoll.machinery.meta.objects import Object

_EXTERNAL_DOCS: Table = {"description": text(1), "url": text(2), "x-": extension(3)}
_SCHEMA: dict[str, Field] = {}


def _additional(value: Any) -> bytes:
    """AdditionalPropertiesItem, field 21 of a schema: a schema or a boolean."""
    write = block(21)
    return write(b"\x10\x01" if value else b"\x10\x00") if isinstance(value, bool) else write(_inner(value))


_SCHEMA.update({
    "$ref": text(1), "format": text(2), "title": text(3), "description": text(4), "default": anything(5),
    "multipleOf": double(6), "maximum": double(7), "exclusiveMaximum": flag(8), "minimum": double(9),
    "exclusiveMinimum": flag(10), "maxLength": integer(11), "minLength": integer(12), "pattern": text(13),
    "maxItems": integer(14), "minItems": integer(15), "uniqueItems": flag(16), "maxProperties": integer(17),
    "minProperties": integer(18), "required": texts(19), "enum": each(anything(20)),
    "additionalProperties": _additional, "type": wrapped(22, texts(1)), "items": wrapped(23, message(1, _SCHEMA)),
    "allOf": messages(24, _SCHEMA), "properties": wrapped(25, entries(1, message(2, _SCHEMA))),
    "readOnly": flag(27), "externalDocs": message(29, _EXTERNAL_DOCS), "example": anything(30), "x-": extension(31),
})  # fmt: skip
_inner = message(1, _SCHEMA)

_BODY: Table = {
    "description": text(1), "name": text(2), "in": text(3), "required": flag(4), "schema": message(5, _SCHEMA),
}  # fmt: skip
_QUERY: Table = {
    "required": flag(1), "in": text(2), "description": text(3), "name": text(4), "type": text(6),
    "uniqueItems": flag(20),
}  # fmt: skip
_PATH: Table = {
    "required": flag(1), "in": text(2), "description": text(3), "name": text(4), "type": text(5),
    "uniqueItems": flag(19),
}  # fmt: skip
_REFERENCE: Table = {"$ref": text(1), "description": text(2)}
_IN: dict[str, Field] = {
    "body": message(1, _BODY), "query": wrapped(2, message(3, _QUERY)), "path": wrapped(2, message(4, _PATH)),
}  # fmt: skip


def _parameter(value: Object) -> bytes:
    """Return the content of a Parameter: BodyParameter, or the NonBodyParameter of the location `in`."""
    return _IN[value["in"]](value)


_item_of_own, _item_of_reference = block(1), message(2, _REFERENCE)


def _parameter_item(value: Object) -> bytes:
    return _item_of_reference(value) if "$ref" in value else _item_of_own(_parameter(value))


def _parameters(number: int) -> Field:
    write = block(number)
    return lambda value: b"".join(write(_parameter_item(item)) for item in value)


_RESPONSE: Table = {"description": text(1), "schema": wrapped(2, message(1, _SCHEMA))}
_OPERATION: Table = {
    "tags": texts(1), "description": text(3), "operationId": text(5), "produces": texts(6), "consumes": texts(7),
    "parameters": _parameters(8), "responses": wrapped(9, entries(1, wrapped(2, message(1, _RESPONSE)))),
    "schemes": texts(10), "x-": extension(13),
}  # fmt: skip
_PATH_ITEM: Table = {
    "get": message(2, _OPERATION), "put": message(3, _OPERATION), "post": message(4, _OPERATION),
    "delete": message(5, _OPERATION), "patch": message(8, _OPERATION), "parameters": _parameters(9),
}  # fmt: skip
_API_KEY: Table = {"type": text(1), "name": text(2), "in": text(3), "description": text(4)}
_DOCUMENT: Table = {
    "swagger": text(1),
    "info": message(2, {"title": text(1), "version": text(2)}),
    "parameters": wrapped(10, entries(1, lambda value: block(2)(_parameter(value)))),
    "security": each(wrapped(12, entries(1, wrapped(2, texts(1))))),
    "securityDefinitions": wrapped(13, entries(1, wrapped(2, message(2, _API_KEY)))),
}

#: Encodes one definition: name, schema.
definition = named(1, message(2, _SCHEMA))
#: Encodes one path item: path, path item.
path_item = named(2, message(2, _PATH_ITEM))


def document(paths: list[bytes], definitions: list[bytes], security: Object) -> bytes:
    """Return the document of encoded path items and definitions."""
    head = {
        "swagger": v2.VERSION, "info": v2.INFO, "parameters": v2.shared_parameters(), "security": v2.SECURITY,
        "securityDefinitions": security,
    }  # fmt: skip
    return joined([encode(_DOCUMENT, head), block(8)(joined(paths)), block(9)(joined(definitions))])
