"""Conflicts of server-side apply: which fields of the patch other managers own, and the 409 that reports them.

`ownership` collects the conflicts, `apply` raises `conflict_error`. The texts are exactly Kubernetes': kubectl and
controllers read `details.causes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from atoll.machinery.meta.objects import encode_json
from atoll.machinery.meta.status import Cause
from atoll.machinery.patch.errors import ApplyConflict
from atoll.machinery.patch.fieldset import FieldSet, leaves
from atoll.machinery.patch.managedfields.managers import UPDATE, ManagedFieldsEntry, Manager
from atoll.machinery.patch.path_elements import readable


class FieldManagerConflict(NamedTuple):
    """Fields that a write changes and that the manager of `entry` owns."""

    entry: ManagedFieldsEntry
    fields: FieldSet


def conflict_error(conflicts: Sequence[FieldManagerConflict]) -> ApplyConflict:
    """Return the 409 for these conflicts, sorted by manager, then by path."""
    paths = [
        (_manager_text(entry.manager), _path_text(path))
        for entry, fields in sorted(conflicts, key=lambda conflict: conflict.entry.manager.key)
        for path in leaves(fields)
    ]
    causes = [Cause("FieldManagerConflict", f"conflict with {manager}", path) for manager, path in paths]
    return ApplyConflict(_message(paths), causes)


def _path_text(path: Sequence[str]) -> str:
    """Format a path as `.spec.ports[port=80,protocol="TCP"].targetPort`."""
    return "".join(map(readable, path))


def _manager_text(manager: Manager) -> str:
    text = encode_json(manager.name).decode()
    if manager.subresource:
        text += f" with subresource {encode_json(manager.subresource).decode()}"
    return f"{text} using {manager.api_version}" if manager.operation == UPDATE else text


def _message(paths: Sequence[tuple[str, str]]) -> str:
    """Format pairs of manager and path."""
    if len(paths) == 1:
        manager, path = paths[0]
        return f"Apply failed with 1 conflict: conflict with {manager}: {path}"
    lines: list[str] = []
    by_manager: dict[str, list[str]] = {}
    for manager, path in paths:
        by_manager.setdefault(manager, []).append(path)
    for manager, owned in by_manager.items():
        lines.append(f"conflicts with {manager}:")
        lines.extend(f"- {path}" for path in owned)
    return f"Apply failed with {len(paths)} conflicts: " + "\n".join(lines)
