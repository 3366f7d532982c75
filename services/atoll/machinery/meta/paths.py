"""Workspace paths: joining, splitting, parents, and the forms that users may write.

The path index, workspace scheduling, type resolution and the command line call these. A path is colon
separated workspace names below a root cluster name (`root:acme:web`); `system:...` is one name without a
parent, and `user:<name>` is the root of a home workspace (kcp gives it no Workspace object and no parent).
"""

from __future__ import annotations

from collections.abc import Iterator

from atoll.machinery.meta.names import is_workspace_path

SEPARATOR = ":"
#: First segment of the paths of home workspaces, `user:<name>`.
HOME = "user"
_SYSTEM = "system:"


def join(parent: str, *names: str) -> str:
    """The path of a workspace below parent; an empty parent gives the names alone."""
    return SEPARATOR.join((parent, *names) if parent else names)


def split(path: str) -> tuple[str, str]:
    """Parent path and last name. The parent is empty for roots, homes (`user:alice`) and `system:` names."""
    parent, _, name = path.rpartition(SEPARATOR)
    if not parent or parent == HOME or path.startswith(_SYSTEM):
        return "", path
    return parent, name


def parent(path: str) -> str:
    """The path one level up, empty where there is none."""
    return split(path)[0]


def segments(path: str) -> tuple[str, ...]:
    """The root cluster's name (or `user:<name>`), then the workspace names below it."""
    names: list[str] = []
    while path:
        path, name = split(path)
        names.append(name)
    return tuple(reversed(names))


def ancestors(path: str) -> Iterator[str]:
    """The path itself, then its parents, nearest first; nothing for an empty path."""
    while path:
        yield path
        path = parent(path)


def canonical(text: str) -> str:
    """Return the canonical, colon separated form of a path that a user wrote.

    `/` counts as a separator, one leading separator says that the path is absolute, one trailing separator
    is dropped (`:root:acme`, `root/acme/`). Raises ValueError for what is no path.
    """
    path = text.replace("/", SEPARATOR).removeprefix(SEPARATOR).removesuffix(SEPARATOR)
    if not is_workspace_path(path):
        raise ValueError(f'"{text}" is not a workspace path')
    return path
