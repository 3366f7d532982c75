"""Names, scope, verbs and subresources of the selected kinds, as discovery publishes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.kubernetes_source.selection import GROUPS, NOT_SERVED, GroupVersion, resources

Object = dict[str, Any]


def kinds(source: Path) -> list[Object]:
    """Return a row for each selected resource: names and scope, and verbs and subresources by version."""
    return [_kind(source, group, plural) for group in GROUPS for plural in resources(group)]


def _kind(source: Path, group: str, plural: str) -> Object:
    row: Object = {}
    for name in GROUPS[group][0]:
        listed = _resources(source, GroupVersion(group, name))
        found = listed[plural]
        if not row:
            row = {"group": group, "kind": found["kind"], "plural": plural, "singular": found["singularName"]}
            row["namespaced"] = found["namespaced"]
            row |= {key: found[key] for key in ("shortNames", "categories") if key in found}
            row["versions"] = []
        below = {
            path.partition("/")[2]: each
            for path, each in listed.items()
            if path.startswith(plural + "/") and path.partition("/")[2] not in NOT_SERVED
        }
        version: Object = {"name": name, "verbs": " ".join(found["verbs"])}
        if below:
            version["subresources"] = {key: " ".join(each["verbs"]) for key, each in sorted(below.items())}
        row["versions"].append(version)
    return row


def _resources(source: Path, version: GroupVersion) -> dict[str, Object]:
    listed = json.loads((source / "api/discovery" / f"{version.file}.json").read_bytes())["resources"]
    return {each["name"]: each for each in listed}
