"""The order in which workspaces get their definitions, across the tree. Pure.

A workspace is made after its parent and after its type; a type after the types that it extends and the exports that its
workspaces bind. Invariant: a step comes after all that it needs, but where the needs form a circle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, TypeAlias

import msgspec

from atoll.machinery.meta.objects import Object, spec_of

#: `exports`: the workspace itself, its schemas and exports. `types`: its workspace types.
Step: TypeAlias = tuple[Literal["exports", "types"], str]


class SourceWorkspace(msgspec.Struct, frozen=True):
    """A workspace of the source. `manifest` is its Workspace, None for the top of all. `types` are WorkspaceTypes."""

    path: str
    cluster: str
    manifest: Object | None
    types: tuple[Object, ...] = ()


def in_order(workspaces: Iterable[SourceWorkspace]) -> list[Step]:
    """Return the steps; references are paths already. What is outside of the tree is taken as there."""
    needs: dict[Step, list[Step]] = {}
    for each in workspaces:
        needs["exports", each.path] = list(_before_exports(each))
        needs["types", each.path] = list(_before_types(each))
    found: list[Step] = []
    seen: set[Step] = set()
    for step in needs:
        _visit(step, needs, seen, found)
    return found


def _visit(start: Step, needs: Mapping[Step, list[Step]], seen: set[Step], found: list[Step]) -> None:
    """Append a step after those it needs, depth first without recursion: a tree may be deep."""
    if start in seen:
        return
    seen.add(start)
    open_steps = [(start, iter(needs[start]))]
    while open_steps:
        _, rest = open_steps[-1]
        following = next((each for each in rest if each in needs and each not in seen), None)
        if following is None:
            found.append(open_steps.pop()[0])
        else:
            seen.add(following)
            open_steps.append((following, iter(needs[following])))


def _before_exports(workspace: SourceWorkspace) -> Iterator[Step]:
    yield "exports", workspace.path.rpartition(":")[0]
    if workspace.manifest is not None and (kind := spec_of(workspace.manifest).get("type")):
        yield "types", kind.get("path", "")


def _before_types(workspace: SourceWorkspace) -> Iterator[Step]:
    yield "exports", workspace.path
    for each in workspace.types:
        spec = spec_of(each)
        for base in (spec.get("extend") or {}).get("with") or ():
            if base.get("path") != workspace.path:
                yield "types", base.get("path", "")
        for binding in spec.get("defaultAPIBindings") or ():
            yield "exports", binding.get("path") or workspace.path
