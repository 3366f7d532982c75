"""Fields of the messages of Kubernetes' kinds, from the tags of its Go types: the tables of protobuf bodies.

Rows are those of `atoll.machinery.kinds.protobuf_table`. Invariant: a named type counts as what it stands for, such as
a text or a map, unless it is a message.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from harness.kubernetes_source.modules import source_of

Object = dict[str, Any]

_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"^type (\w+) (?!struct)=? ?(\S+)", re.MULTILINE)
_FIELD = re.compile(r"^\t(?:\w+\s+)?(\S+)\s+`([^`]*)`", re.MULTILINE)
_IMPORT = re.compile(r'^\t?(?:import )?(\w+)? ?"(k8s\.io/[^"]+)"', re.MULTILINE)
_TAG = re.compile(r'(\w+):"([^"]*)"')
_SCALARS = {
    "string": "string",
    "bool": "bool",
    "int32": "int32",
    "int64": "int64",
    "float64": "double",
    "[]byte": "bytes",
}
_MODULES = ("k8s.io/api", "k8s.io/apimachinery", "k8s.io/kube-aggregator")
#: Types of the machinery that are texts.
_TEXTS = frozenset({"UID", "ConditionStatus", "NodeName", "NamespacedName"})


class Package:
    """The types of a Go package. `prefix` is that of the names of its messages."""

    def __init__(self, path: str) -> None:
        self.path = path
        text = "\n".join(file.read_text() for file in _files(path))
        self.structs = dict(_STRUCT.findall(text))
        self.named = dict(_NAMED.findall(text))
        self.imports = {alias or found.rpartition("/")[2]: found for alias, found in _IMPORT.findall(text)}

    @property
    def prefix(self) -> str:
        return "io.k8s." + self.path.removeprefix("k8s.io/").replace("/", ".")

    def rows(self, name: str) -> list[Object]:
        """Return the fields of a message, in the order of the Go type."""
        return [row for kind, tags in _FIELD.findall(self.structs[name]) if (row := self._row(kind, tags))]

    def _row(self, kind: str, text: str) -> Object | None:
        tags = dict(_TAG.findall(text))
        parts = tags.get("protobuf", "").split(",")
        if len(parts) < 3:
            return None
        name, *options = tags["json"].split(",")
        inline = "inline" in options
        protobuf_name = next((part[5:] for part in parts if part.startswith("name=")), "")
        found, repeated = self._type(kind)
        row: Object = {"number": int(parts[1]), "name": name or protobuf_name, "type": found}
        if repeated:
            row["repeated"] = True
        if inline:
            row["inline"] = True
        is_plain = found in _SCALARS.values() and not repeated and not kind.startswith("*") and found != "bytes"
        if "omitempty" in options and is_plain:
            row["omitempty"] = True
        row |= {key: tags[tag] for key, tag in (("strategy", "patchStrategy"), ("key", "patchMergeKey")) if tag in tags}
        return row

    def _type(self, kind: str) -> tuple[str, bool]:
        """Return the type of a field, and whether it is a list."""
        kind = kind.lstrip("*")
        if kind in _SCALARS:
            return _SCALARS[kind], False
        if kind.startswith("[]"):
            return self._type(kind[2:])[0], True
        if kind.startswith("map["):
            return f"map<string,{self._type(kind.partition(']')[2])[0]}>", False
        alias, _, name = kind.rpartition(".")
        package = package_of(self.imports[alias]) if alias else self
        if name in package.structs and name not in _TEXTS:
            return f"{package.prefix}.{name}", False
        return ("string", False) if name in _TEXTS else package._type(package.named[name])


@cache
def package_of(path: str) -> Package:
    """Return a package of Kubernetes by its import path."""
    return Package(path)


def tables(kinds: Mapping[tuple[str, str], str], present: Collection[str]) -> Object:
    """Return the table of the messages of kinds that are not `present`, and of all that they refer to.

    `kinds` maps API version and kind to a message.
    """
    found: Object = {"kinds": {}, "messages": {}}
    todo = []
    for (api_version, kind), message in kinds.items():
        if message not in present:
            found["kinds"].setdefault(api_version, {})[kind] = message
            todo.append(message)
    while todo:
        name = todo.pop()
        if name not in found["messages"] and name not in present:
            found["messages"][name] = rows_of(name)
            todo += list(_references(found["messages"][name]))
    found["messages"] = dict(sorted(found["messages"].items()))
    return found


def rows_of(message: str) -> list[Object]:
    """Return the fields of a message by its name, such as `io.k8s.api.apps.v1.Deployment`."""
    path, _, name = message.rpartition(".")
    return package_of("k8s.io/" + path.removeprefix("io.k8s.").replace(".", "/")).rows(name)


def omitted_fields(message: str) -> set[str]:
    """Return the fields that Go's JSON does not show with a zero value, those of inlined messages too."""
    found: set[str] = set()
    for row in rows_of(message):
        if row.get("inline"):
            found |= omitted_fields(row["type"])
        elif row.get("omitempty"):
            found.add(row["name"])
    return found


def _references(rows: list[Object]) -> Iterator[str]:
    for row in rows:
        name = row["type"].removeprefix("map<string,").removesuffix(">")
        if "." in name:
            yield name


def _files(path: str) -> list[Path]:
    module = next(module for module in _MODULES if path.startswith(module + "/"))
    folder = source_of(module) / path.removeprefix(module + "/")
    return [file for file in sorted(folder.glob("*.go")) if not re.search(r"_test\.go$|generated", file.name)]
