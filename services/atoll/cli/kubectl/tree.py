"""Lists the workspaces below one, level by level, and renders them as a tree.

Called by `ws tree`. Invariant: a workspace that cannot be listed is drawn without children; the others are complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec

from atoll.cli.kubectl.workspaces import phase_of, type_of
from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import WORKSPACES
from atoll.machinery.meta.objects import Object, spec_of
from atoll.machinery.meta.status import Forbidden, NotFound

PAGE = "500"
#: Concurrent list requests.
PARALLEL = 16


class Node(msgspec.Struct):
    """A workspace and its children, sorted by name. Unknown fields are empty."""

    path: str
    children: list[Node] = []
    type: str = ""
    phase: str = ""
    cluster: str = ""

    @property
    def note(self) -> str:
        """The phase, unless it is Ready."""
        return f" ({self.phase})" if self.phase not in {"", "Ready"} else ""

    @property
    def details(self) -> str:
        """Type, phase and cluster, where known."""
        fields = (("type", self.type), ("phase", self.phase), ("cluster", self.cluster))
        return "".join(f"  {name}={value}" for name, value in fields if value)


async def workspace_tree(client: Client, path: str) -> Node:
    """Return everything below a workspace. Raises ApiError if the workspace itself cannot be listed."""
    top = Node(path, await _children(client, path))
    slots = asyncio.Semaphore(PARALLEL)

    async def fill(node: Node) -> None:
        async with slots:
            try:
                node.children = await _children(client, node.path)
            except (Forbidden, NotFound):
                return

    level = top.children
    while level:
        await asyncio.gather(*(fill(node) for node in level))
        level = [child for node in level for child in node.children]
    return top


async def _children(client: Client, path: str) -> list[Node]:
    found = await client.cluster(path).list(WORKSPACES, limit=PAGE)
    nodes = (_node(path, item) for item in found["items"])
    return sorted(nodes, key=lambda node: node.path)


def _node(path: str, workspace: Object) -> Node:
    cluster = str(spec_of(workspace).get("cluster") or "")
    return Node(f"{path}:{workspace['metadata']['name']}", [], type_of(workspace), phase_of(workspace), cluster)


def render(top: Node, *, full: bool, wide: bool = False) -> str:
    """Return the lines of the tree below a dot, as kcp's plug-in prints them; `wide` adds type, phase and cluster."""
    return "\n".join([".", *_lines([top], "", full, wide)])


def paths(top: Node) -> list[str]:
    """Return the paths of all workspaces, in the order of the lines of `render`."""
    return [top.path, *(path for child in top.children for path in paths(child))]


def _lines(nodes: list[Node], lead: str, full: bool, wide: bool) -> Iterator[str]:
    for node in nodes:
        last, name = node is nodes[-1], node.path if full else node.path.rpartition(":")[2]
        yield f"{lead}{'└── ' if last else '├── '}{name}{node.details if wide else node.note}"
        yield from _lines(node.children, lead + ("    " if last else "│   "), full, wide)
