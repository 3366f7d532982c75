"""`base64.encode(bytes)` and `base64.decode(string)`, which accepts text without padding as well."""

from __future__ import annotations

import base64
import binascii

from atoll.machinery.cel.errors import EvaluationError
from atoll.machinery.cel.functions import Function, Library, Overload
from atoll.machinery.cel.types import BYTES, STRING


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decode(text: str) -> bytes:
    # Go's decoder skips line breaks at any position.
    body = text.replace("\n", "").replace("\r", "")
    if "=" not in body:
        body += "=" * (-len(body) % 4)
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        at = next((i for i, c in enumerate(text) if not (c.isascii() and (c.isalnum() or c in "+/"))), len(text))
        raise EvaluationError(f"illegal base64 data at input byte {at}") from None


ENCODERS = Library(
    "cel.lib.ext.encoders",
    functions=(
        Function("base64.decode", (Overload("base64_decode_string", (STRING,), BYTES, _decode),)),
        Function("base64.encode", (Overload("base64_encode_bytes", (BYTES,), STRING, _encode),)),
    ),
)
