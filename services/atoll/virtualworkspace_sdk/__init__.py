"""SDK for third-party virtual workspaces: a read-only view of many workspaces, in a process of its own.

An author defines the kind, the resources its rows are computed from and the function that computes one row, and calls
`run`; README.md has a complete view. The rows are kept in the view's own store and served by the ordinary pipeline, so
lists, watches, pages, tables, discovery and OpenAPI are those of every workspace. A program imports this package and
nothing below it.

Here belong: the author's interface (`view`), the rows (`rows`, `projection`, `endpoints`), authorization (`reviews`),
serving (`content`, `server`), and the process (`process`, `config`).

Not here: views of the shard itself (`virtualworkspaces`), verbs and watches (`machinery.apiserver`), and writes: a view
changes only through its source objects.
"""

from __future__ import annotations

from atoll.virtualworkspace_sdk.config import ViewConfig
from atoll.virtualworkspace_sdk.process import run
from atoll.virtualworkspace_sdk.view import Key, Look, Object, Source, View

__all__ = ["Key", "Look", "Object", "Source", "View", "ViewConfig", "run"]
