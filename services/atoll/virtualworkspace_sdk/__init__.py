"""SDK for third-party virtual workspaces: views of many workspaces, in a process of their own.

An author defines a kind, the resources its rows are computed from, the function that computes one row and, for a view
that writes, the function that returns the changes of a write, and calls `run`; README.md has complete views. The rows
are kept in the process' own store and served by the ordinary pipeline, so lists, watches, pages, tables, discovery and
OpenAPI are those of every workspace. A program imports this package and nothing below it.

Here belong: the author's interface (`view`), the rows (`rows`, `projection`, `sharing`, `source_endpoint`,
`endpoints`), writes (`view_writes`, `writer`), authorization (`reviews`, `permissions`), serving (`content`, `server`),
and the process (`process`, `config`).

Not here: views of the shard itself (`virtualworkspaces`), verbs and watches (`machinery.apiserver`), and content that
a view stores: a row changes only through its source objects.
"""

from __future__ import annotations

from atoll.virtualworkspace_sdk.config import ViewConfig
from atoll.virtualworkspace_sdk.process import run, serve
from atoll.virtualworkspace_sdk.view import Change, Key, Look, Object, Source, View, Write, WriteRefused

__all__ = ["Change", "Key", "Look", "Object", "Source", "View", "ViewConfig", "Write", "WriteRefused", "run", "serve"]
