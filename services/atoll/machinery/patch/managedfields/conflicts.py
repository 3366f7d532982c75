"""Telling a user whose fields an apply wanted to take.

apply collects what transfer_ownership took from other managers and raises what this module makes of it. The texts are
Kubernetes' to the letter: kubectl and controllers read `details.causes`.
"""

from __future__ import annotations

from collections.abc import Sequence

from atoll.machinery.meta.objects import encode_json
from atoll.machinery.meta.status import Cause
from atoll.machinery.patch.errors import ApplyConflict
from atoll.machinery.patch.fieldset import FieldSet, leaves
from atoll.machinery.patch.managedfields.managers import UPDATE, ManagedFieldsEntry, Manager
from atoll.machinery.patch.path_elements import readable


def conflict_error(taken: Sequence[tuple[ManagedFieldsEntry, FieldSet]]) -> ApplyConflict:
    """The 409 for these fields of other managers, sorted by manager, then by path."""
    found = [
        (_described(entry.manager), _path_text(path))
        for entry, fields in sorted(taken, key=lambda pair: pair[0].manager.key)
        for path in leaves(fields)
    ]
    causes = [Cause("FieldManagerConflict", f"conflict with {manager}", path) for manager, path in found]
    return ApplyConflict(_message(found), causes)


def _path_text(path: Sequence[str]) -> str:
    """`.spec.ports[port=80,protocol="TCP"].targetPort`."""
    return "".join(map(readable, path))


def _described(manager: Manager) -> str:
    text = encode_json(manager.name).decode()
    if manager.subresource:
        text += f" with subresource {encode_json(manager.subresource).decode()}"
    return f"{text} using {manager.api_version}" if manager.operation == UPDATE else text


def _message(found: Sequence[tuple[str, str]]) -> str:
    if len(found) == 1:
        manager, path = found[0]
        return f"Apply failed with 1 conflict: conflict with {manager}: {path}"
    lines: list[str] = []
    by_manager: dict[str, list[str]] = {}
    for manager, path in found:
        by_manager.setdefault(manager, []).append(path)
    for manager, paths in by_manager.items():
        lines.append(f"conflicts with {manager}:")
        lines.extend(f"- {path}" for path in paths)
    return f"Apply failed with {len(found)} conflicts: " + "\n".join(lines)
