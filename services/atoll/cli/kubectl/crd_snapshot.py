"""`kubectl kcp crd snapshot`: converts CustomResourceDefinitions to APIResourceSchemas, without a server.

Called by `kcp`. Reads a file or standard input like kubectl; other kinds are omitted with a warning, so that a whole
release can be piped through. Invariant: nothing is printed unless every definition has a schema.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from atoll.cli.kubectl.plugin import Failure, run, say, warn
from atoll.machinery.kcp.apis.resource_schema import NotExportable, resource_schema
from atoll.machinery.meta.objects import Object
from atoll.machinery.schema.decoding.document import DecodeError
from atoll.machinery.schema.decoding.yaml_decoder import decode_yaml

#: Separator of YAML documents.
_BREAK = re.compile(rb"^---(?=\s|$).*$", re.MULTILINE)
#: Text that a parser of YAML 1.2, or Go's parser, reads as a number.
_LIKE_A_NUMBER = re.compile(r"[-+]?\.?\d")
DEFINITION, LISTS = "CustomResourceDefinition", {"List", "CustomResourceDefinitionList"}


def dispatch(arguments: Sequence[str]) -> int:
    """Run the command. Return its exit code."""
    options = _parser().parse_args(list(arguments))
    return run(_snapshot(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kubectl kcp crd snapshot",
        allow_abbrev=False,
        description="Print CustomResourceDefinitions as the APIResourceSchemas that an APIExport can name.",
    )
    parser.add_argument("-f", "--filename", required=True, metavar="FILE", help="file to read; - is standard input")
    parser.add_argument("--prefix", required=True, help="what the names of the schemas begin with, as in v240101")
    parser.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="form of the output")
    return parser


async def _snapshot(options: argparse.Namespace) -> None:
    found = list(schemas(_read(options.filename), options.prefix))
    if not found:
        raise Failure(f"{_named(options.filename)} holds no {DEFINITION}")
    say("\n".join(_printed(found, options.output)))


def _read(filename: str) -> bytes:
    return sys.stdin.buffer.read() if filename == "-" else Path(filename).read_bytes()


def schemas(data: bytes, prefix: str) -> Iterator[Object]:
    """Yield the schemas of all definitions in a manifest. Raises Failure."""
    for document in _documents(data):
        name = f"{document.get('kind')} {_name(document)}"
        if document.get("kind") != DEFINITION:
            warn(f"{name} is left out: it is no {DEFINITION}")
            continue
        try:
            yield resource_schema(document, prefix)
        except NotExportable as error:
            raise Failure(f"{name}: {error}") from error


def _documents(data: bytes) -> Iterator[Object]:
    for text in _BREAK.split(data):
        value = _document(text) if text.strip() else None
        if isinstance(value, dict) and value.get("kind") in LISTS:
            yield from (item for item in value.get("items") or () if isinstance(item, dict))
        elif isinstance(value, dict):
            yield value
        elif value is not None:
            raise Failure("not a manifest: a document is no object")


def _document(text: bytes) -> Any:
    try:
        decoded = decode_yaml(text)
    except DecodeError as error:
        raise Failure(f"not a manifest: {error}") from error
    if decoded.duplicate_keys:
        # Concatenated files without a separator would otherwise be one document with the values of the last.
        raise Failure(f"not a manifest: {decoded.duplicate_keys[0]}; is a --- missing between documents?")
    return decoded.value


def _name(document: Object) -> str:
    metadata = document.get("metadata")
    return str(metadata.get("name") or "") if isinstance(metadata, dict) else ""


def _named(filename: str) -> str:
    return "standard input" if filename == "-" else filename


def _printed(found: list[Object], form: str) -> Iterator[str]:
    for number, schema in enumerate(found):
        if form == "json":
            yield json.dumps(schema, indent=4, ensure_ascii=False)
            continue
        if number:
            yield "---"
        yield yaml.dump(schema, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1 << 20).rstrip("\n")


_SafeDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_SafeDumper):  # type: ignore[misc]
    """Writes multi-line text as blocks, and quotes text that could be read as a number."""


def _text(dumper: Any, text: str) -> Any:
    style = "|" if "\n" in text else "'" if _LIKE_A_NUMBER.match(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
# Versions of a definition may share a schema object; print it in each, without YAML aliases.
_Dumper.ignore_aliases = lambda self, data: True
