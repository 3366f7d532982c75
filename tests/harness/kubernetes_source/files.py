"""The files in `schemas/native/kubernetes`, made from the source."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from atoll.machinery.kinds.native_schemas import definitions
from atoll.machinery.kinds.protobuf_values import READERS
from atoll.machinery.process.resources import schema_path
from harness.kubernetes_source import discovery, messages, openapi
from harness.kubernetes_source.columns import columns
from harness.kubernetes_source.modules import source_of, version_of

Object = dict[str, Any]

_WIDTH = 150
#: The columns of a kind without a printer of its own.
_PLAIN = [{"name": "Name", "type": "string", "format": "name"}, {"name": "Created At", "type": "date"}]


def folder() -> Path:
    """The folder that the files are in."""
    return schema_path("native", "kubernetes")


@cache
def made() -> dict[str, str]:
    """Return the text of each file by its path in the folder. Raises NoSource."""
    kubernetes = source_of("k8s.io/kubernetes")
    components, printed = openapi.names_of_kinds(kubernetes), columns(kubernetes, source_of("k8s.io/kube-aggregator"))
    kinds = discovery.kinds(kubernetes)
    selected: dict[tuple[str, str], str] = {}
    for row in kinds:
        for version in row["versions"]:
            api_version = f"{row['group']}/{version['name']}" if row["group"] else version["name"]
            selected[api_version, row["kind"]] = version["component"] = components[api_version, row["kind"]]
        row["columns"] = printed.get(row["kind"], _PLAIN)
    found = {
        "kinds.json": _text({"version": version_of(kubernetes), "kinds": kinds}),
        "protobuf.json": _text(messages.tables(selected, _edited_messages())),
    }
    files: dict[str, Object] = {}
    for name, schema in sorted(openapi.components(kubernetes, selected.values(), definitions()).items()):
        files.setdefault(openapi.file_of(name), {})[name] = schema
    return found | {f"openapi/{name}.json": _text(schemas) for name, schemas in files.items()}


def differences() -> list[str]:
    """Return the paths of files that are missing, surplus or different."""
    wanted = made()
    present = {str(path.relative_to(folder())): path.read_text() for path in _written()}
    return sorted(name for name in wanted.keys() | present.keys() if wanted.get(name) != present.get(name))


def write() -> None:
    """Write all files, and remove those that are no longer made."""
    texts = made()
    for path in _written():
        path.unlink()
    for name, text in texts.items():
        path = folder() / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    names = [sys.executable, "-m", "harness.kubernetes_source.schema_names"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(names, check=True, capture_output=True, text=True, env=environment)
    (folder() / "schema_names.json").write_text(done.stdout)


def _written() -> list[Path]:
    return [*folder().glob("openapi/*.json"), *folder().glob("kinds.json"), *folder().glob("protobuf.json")]


def _edited_messages() -> set[str]:
    """The messages of the tables that are edited by hand, and those that are no objects."""
    paths = [schema_path("native", name) for name in ("protobuf.json", "protobuf_custom.json")]
    return {message for path in paths for message in json.loads(path.read_bytes())["messages"]} | READERS.keys()


def _text(value: Object) -> str:
    return _laid_out(value, "") + "\n"


def _laid_out(value: Any, indent: str) -> str:
    """Return JSON with one line for what fits, and a line for each part of what does not."""
    line = json.dumps(value)
    if len(indent) + len(line) <= _WIDTH or not isinstance(value, (dict, list)):
        return line
    deeper = indent + " "
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {_laid_out(each, deeper)}" for key, each in value.items()]
    else:
        parts = [_laid_out(each, deeper) for each in value]
    opened, closed = ("{", "}") if isinstance(value, dict) else ("[", "]")
    return f"{opened}\n" + ",\n".join(deeper + part for part in parts) + f"\n{indent}{closed}"
