"""The public face for other people's virtual workspaces: a read-only view of many workspaces, in a process of its own.

An author says what kind is shown, of which objects its rows are made and how, and calls `run`; README.md has a whole
view. The rows are kept in a store of the view's own and served by the ordinary pipeline, so that lists, watches, pages,
tables, discovery and OpenAPI are those of every workspace. A program imports this package and nothing below it.

Here belong: what an author says (`view`), keeping rows (`rows`, `projection`, `endpoints`), who may read them
(`reviews`), serving (`content`, `server`), and the process (`process`, `config`).

Not here: views of the shard itself (`virtualworkspaces`), verbs and watches (`machinery.apiserver`), and writing: what
a view shows is changed by changing what it is made of.
"""

from __future__ import annotations

from atoll.virtualworkspace_sdk.config import ViewConfig
from atoll.virtualworkspace_sdk.process import run
from atoll.virtualworkspace_sdk.view import Key, Look, Object, Source, View

__all__ = ["Key", "Look", "Object", "Source", "View", "ViewConfig", "run"]
