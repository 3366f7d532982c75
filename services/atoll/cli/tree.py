"""The workspaces below one, listed level by level and drawn.

Called by `ws tree`. Invariant: what may not be listed is drawn without children; it never hides the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec

from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import WORKSPACES
from atoll.machinery.meta.status import Forbidden, NotFound

PAGE = "500"
#: Lists under way at a time.
PARALLEL = 16


class Node(msgspec.Struct):
    """A workspace and what is below it, by name."""

    path: str
    children: list[Node] = []


async def workspace_tree(client: Client, path: str) -> Node:
    """Everything below a workspace. Raises ApiError if the workspace itself may not be listed."""
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
    return [Node(f"{path}:{name}") for name in sorted(item["metadata"]["name"] for item in found["items"])]


def drawn(top: Node, *, full: bool) -> str:
    """Lines under a dot, as kcp's plug-in draws them."""
    return "\n".join([".", *_lines([top], "", full)])


def _lines(nodes: list[Node], lead: str, full: bool) -> Iterator[str]:
    for node in nodes:
        last = node is nodes[-1]
        yield f"{lead}{'└── ' if last else '├── '}{node.path if full else node.path.rpartition(':')[2]}"
        yield from _lines(node.children, lead + ("    " if last else "│   "), full)
