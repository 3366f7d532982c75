"""Component schemas of the selected kinds without descriptions, by file."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from harness.kubernetes_source import messages
from harness.kubernetes_source.selection import GroupVersion, group_versions

Object = dict[str, Any]

_REF = "#/components/schemas/"
#: Marks that hold for components as a whole or say what the structure says already.
_DROPPED = frozenset({"description", "x-kubernetes-group-version-kind", "x-kubernetes-unions"})
#: The default of a required field only says what Go shows for an absent one. Nobody has to write a status.
_ZEROS: tuple[object, ...] = ("", 0, False)
_OBSERVED = ("Status", "NodeSystemInfo", "DaemonEndpoint")
#: Components that are no objects, so that an empty one is no default of theirs.
_SCALARS = ("Quantity", "Time", "IntOrString")


def components(source: Path, kinds: Iterable[str], present: Collection[str]) -> dict[str, Object]:
    """Return the components of `kinds`, and all that they refer to, by name, without those in `present`."""
    published: dict[str, Object] = {}
    for version in group_versions():
        published.update(_published(source, version))
    found: dict[str, Object] = {}
    todo = sorted(kinds)
    while todo:
        name = todo.pop()
        if name not in found and name not in present:
            found[name] = _without_unseen(name, _reduced(published[name]))
            todo += sorted(_references(found[name]))
    return found


def names_of_kinds(source: Path) -> dict[tuple[str, str], str]:
    """Return the component's name for each API version and kind of the selected groups."""
    return {
        (version.api_version, mark["kind"]): name
        for version in group_versions()
        for name, schema in _published(source, version).items()
        for mark in schema.get("x-kubernetes-group-version-kind", [])
        if (mark["group"], mark["version"]) == (version.group, version.version)
    }


def file_of(component: str) -> str:
    """Return the file of a component: its group, such as `apps`, or `meta` for the machinery's types."""
    parts = component.split(".")
    if component.startswith("io.k8s.api."):
        return parts[3]
    return parts[-3] if component.startswith("io.k8s.kube-aggregator.") else "meta"


def _published(source: Path, version: GroupVersion) -> dict[str, Object]:
    path = source / "api/openapi-spec/v3" / f"{version.file}_openapi.json"
    found: dict[str, Object] = json.loads(path.read_bytes())["components"]["schemas"]
    return found


def _without_unseen(name: str, schema: Object) -> Object:
    """Drop the zero defaults that validation replaces by an error, and those that Go never shows."""
    required = () if name.endswith(_OBSERVED) else schema.get("required", ())
    zeros = [field for field, source in schema.get("properties", {}).items() if source.get("default") in _ZEROS]
    for field in zeros:
        if field in required or field in messages.omitted_fields(name):
            del schema["properties"][field]["default"]
    return schema


def _reduced(schema: Object) -> Object:
    kept = {key: value for key, value in schema.items() if key not in _DROPPED}
    if "properties" in kept:
        kept["properties"] = {key: _field(value) for key, value in kept["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(kept.get(key), dict):
            kept[key] = _alone({mark: value for mark, value in _field(kept[key]).items() if mark != "default"})
    return kept


def _field(schema: Object) -> Object:
    kept = _reduced(schema)
    if "default" in kept and "allOf" in kept and kept["allOf"][0]["$ref"].endswith(_SCALARS):
        del kept["default"]
    return _alone(kept)


def _alone(schema: Object) -> Object:
    """Return a reference without the list that marks beside it need."""
    return dict(schema["allOf"][0]) if set(schema) == {"allOf"} else schema


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"].removeprefix(_REF)
        for each in value.values():
            yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)
