"""Hostile bodies: their content, media types and the right error codes.

`scenarios.test_bodies` sends each of them with every write verb that takes its media type. A body is a function of the
valid document that it spoils, so that the fault is the only reason of the error.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec

from atoll.machinery.meta.objects import Object

JSON, YAML = "application/json", "application/yaml"
JSON_PATCH, MERGE = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
MIB = 1 << 20

#: The valid document, the name of the member that takes free strings.
Spoil = Callable[[Object, str], bytes]


class Body(msgspec.Struct, frozen=True):
    """One fault. `codes` are the right status codes; `media` the media types in which it can be sent."""

    name: str
    spoil: Spoil
    media: tuple[str, ...]
    codes: tuple[int, ...] = (400,)


def _text(document: Object) -> bytes:
    return json.dumps(document).encode()


def _with(document: Object, member: str, raw: bytes) -> bytes:
    """The document with `raw` as the value of a member of its free part."""
    return _text({**document, member: {"x": "@@"}}).replace(b'"@@"', raw)


def _truncated(document: Object, member: str) -> bytes:
    data = _with(document, member, b'"half"')
    return data[: len(data) * 2 // 3]


def _member(raw: bytes) -> Spoil:
    return lambda document, member: _with(document, member, raw)


def _duplicate(document: Object, member: str) -> bytes:
    return _text({**document, member: {"x": "@@"}}).replace(b'"x": "@@"', b'"x":"1","x":"2"')


def _large(document: Object, member: str) -> bytes:
    return _with(document, member, b'"' + b"a" * (4 * MIB) + b'"')


def _many_members(document: Object, member: str) -> bytes:
    return _with(document, member, b"{" + b",".join(b'"%x":%d' % (n, n) for n in range(150_000)) + b"}")


def _laughs(document: Object, member: str) -> bytes:
    """Nine levels of ten aliases each: a gigabyte of strings from a kilobyte."""
    lines = [f"{name}: {json.dumps(value)}" for name, value in document.items() if name != member]
    lines.append(f"{member}:")
    lines.append('  a0: &a0 ["lol","lol","lol","lol","lol","lol","lol","lol","lol","lol"]')
    for level in range(1, 10):
        lines.append(f"  a{level}: &a{level} [" + ",".join([f"*a{level - 1}"] * 10) + "]")
    return "\n".join(lines).encode()


def _self_alias(document: Object, member: str) -> bytes:
    lines = [f"{name}: {json.dumps(value)}" for name, value in document.items() if name != member]
    return "\n".join([*lines, f"{member}: &m", "  x: *m"]).encode()


def _many_anchors(document: Object, member: str) -> bytes:
    lines = [f"{name}: {json.dumps(value)}" for name, value in document.items() if name != member]
    lines.append(f"{member}:")
    lines.append("  b: &b [" + ",".join(["1"] * 1000) + "]")
    lines += [f"  k{number}: *b" for number in range(20_000)]
    return "\n".join(lines).encode()


def _yaml_member(raw: bytes) -> Spoil:
    def spoil(document: Object, member: str) -> bytes:
        lines = [f"{name}: {json.dumps(value)}".encode() for name, value in document.items() if name != member]
        return b"\n".join([*lines, member.encode() + b":", b"  x: " + raw, b""])

    return spoil


_WHOLE = (JSON, MERGE, STRATEGIC)
_DOCUMENTS = (YAML, APPLY)
_ANY = (*_WHOLE, *_DOCUMENTS)
#: Bad bytes are 400; a limit may also be told as 413; what decodes but does not fit the kind is 422 (or 400).
_FITS = (400, 422)

BODIES = (
    Body("empty", lambda _document, _member: b"", _ANY),
    Body("truncated", _truncated, _ANY),
    Body("truncated in a string", lambda document, _: _text(document).rstrip(b'}"'), _ANY),
    Body("no document", lambda _document, _member: b"\x00\x01\x02\x03", _ANY),
    Body("an array", lambda _document, _member: b"[]", _ANY),
    Body("a number", lambda _document, _member: b"7", _ANY),
    Body("two documents", lambda document, _: _text(document) * 2, _WHOLE),
    Body("lists 10,000 deep", _member(b"[" * 10_000 + b"]" * 10_000), _ANY),
    Body("objects 10,000 deep", _member(b'{"a":' * 10_000 + b"1" + b"}" * 10_000), _ANY),
    Body("opened 1,000,000 times", lambda _document, _member: b"[" * 1_000_000, _ANY),
    Body("duplicate keys", _duplicate, _ANY, _FITS),
    Body("NaN", _member(b"NaN"), _WHOLE),
    Body("infinity", _member(b"-Infinity"), _WHOLE),
    Body("infinity by exponent", _member(b"1e400"), _WHOLE, _FITS),
    Body("above 64 bits", _member(b"18446744073709551616"), _WHOLE, _FITS),
    Body("below 64 bits", _member(b"-9223372036854775809"), _WHOLE, _FITS),
    Body("a number of a million digits", _member(b"1" * 1_000_000), _ANY, _FITS),
    # JSON decodes malformed characters as U+FFFD, as Go does.
    Body("invalid UTF-8", _member(b'"\xff\xfe"'), _DOCUMENTS),
    Body("a lone continuation byte", _member(b'"\x80"'), _DOCUMENTS),
    Body("4 MiB", _large, _ANY, (413,)),
    Body("150,000 unexpected members", _many_members, _ANY, (400, 413, 422)),
    Body("YAML NaN", _yaml_member(b".nan"), _DOCUMENTS, _FITS),
    Body("YAML infinity", _yaml_member(b"-.inf"), _DOCUMENTS, _FITS),
    Body("YAML above 64 bits", _yaml_member(b"18446744073709551616"), _DOCUMENTS, _FITS),
    Body("YAML tag of the host language", _yaml_member(b"!!python/object/apply:os.system ['true']"), _DOCUMENTS),
    Body("YAML binary tag", _yaml_member(b"!!binary /w=="), _DOCUMENTS, _FITS),
    Body("YAML aliases to a gigabyte", _laughs, _DOCUMENTS, (400, 413)),
    Body("YAML alias of itself", _self_alias, _DOCUMENTS, (400, 413)),
    Body("YAML with 20,000 aliases of a thousand", _many_anchors, _DOCUMENTS, (400, 413)),
    Body("YAML flow 10,000 deep", _yaml_member(b"[" * 10_000), _DOCUMENTS),
    Body("YAML blocks 10,000 deep", _yaml_member(b"- " * 10_000 + b"1"), _DOCUMENTS),
)


def _operations(*operations: Object) -> bytes:
    return json.dumps(operations).encode()


def _copies(member: str) -> bytes:
    """Each copy of the whole member into itself doubles it: 30 operations, a billion nodes."""
    seed: list[Object] = [{"op": "add", "path": f"/{member}", "value": {"x": "a" * 1000}}]
    seed += [{"op": "copy", "from": f"/{member}", "path": f"/{member}/c{number}"} for number in range(30)]
    return _operations(*seed)


def _long_copies(member: str) -> bytes:
    """Few nodes, many bytes."""
    value = "a" * MIB
    seed: list[Object] = [{"op": "add", "path": f"/{member}", "value": {"x": value}}]
    seed += [{"op": "copy", "from": f"/{member}/x", "path": f"/{member}/c{number}"} for number in range(500)]
    return _operations(*seed)


PATCHES = (
    Body("no operations but an object", lambda _document, _member: b"{}", (JSON_PATCH,)),
    Body("truncated operations", lambda _document, _member: b'[{"op":"add","pa', (JSON_PATCH,)),
    Body("an unknown operation", lambda _d, _m: _operations({"op": "steal", "path": "/"}), (JSON_PATCH,), _FITS),
    Body(
        "10,001 operations",
        lambda _document, member: _operations(*({"op": "test", "path": f"/{member}", "value": 1},) * 10_001),
        (JSON_PATCH,),
        (413,),
    ),
    Body("copies that double", lambda _document, member: _copies(member), (JSON_PATCH,), (400, 413, 422)),
    Body("copies of a megabyte", lambda _document, member: _long_copies(member), (JSON_PATCH,), (400, 413, 422)),
    Body(
        "a pointer of 100,000 tokens",
        lambda _document, _member: _operations({"op": "remove", "path": "/a" * 100_000}),
        (JSON_PATCH,),
        _FITS,
    ),
    Body(
        "a value 10,000 deep",
        lambda _document, member: (
            b'[{"op":"add","path":"/%b","value":' % member.encode() + b"[" * 10_000 + b"]" * 10_000 + b"}]"
        ),
        (JSON_PATCH,),
        _FITS,
    ),
    Body(
        "NaN in an operation",
        lambda _document, member: b'[{"op":"add","path":"/%b/x","value":NaN}]' % member.encode(),
        (JSON_PATCH,),
    ),
    Body(
        "an index beyond 64 bits",
        lambda _document, _member: _operations(
            {"op": "add", "path": "/metadata/finalizers", "value": []},
            {"op": "add", "path": "/metadata/finalizers/99999999999999999999", "value": "x"},
        ),
        (JSON_PATCH,),
        _FITS,
    ),
    Body("4 MiB of operations", lambda _document, _member: b"[" + b" " * (4 * MIB) + b"]", (JSON_PATCH,), (413,)),
)

_ENVELOPE = b"k8s\x00"

PROTOBUFS = (
    Body("protobuf without its prefix", lambda _document, _member: b"\x0a\x01a", (PROTOBUF,)),
    Body("protobuf cut off", lambda _document, _member: _ENVELOPE + b"\x0a\x7fab", (PROTOBUF,)),
    Body("protobuf of huge lengths", lambda _d, _m: _ENVELOPE + b"\x12" + b"\xff" * 8 + b"\x7f", (PROTOBUF,)),
    Body("protobuf of endless varints", lambda _document, _member: _ENVELOPE + b"\xff" * 100_000, (PROTOBUF,)),
    Body("protobuf groups in groups", lambda _document, _member: _ENVELOPE + b"\x0b" * 100_000, (PROTOBUF,)),
)
